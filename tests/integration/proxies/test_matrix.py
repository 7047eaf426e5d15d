"""Each real proxy in each situation: what a client sees, exactly."""

import pytest

from tests.proxies.all import PROXIES
from tests.proxies.lab import Lab
from tests.proxies.matrix import SCENARIOS, Place, Scenario, check, killed, places

ALL = places(PROXIES)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("laboratory", ALL[: len(PROXIES)], indirect=True, ids=str)
def test_a_client_sees(laboratory: Lab, scenario: Scenario) -> None:
    """Status, headers, and whether its connection is kept."""
    check(laboratory, scenario)


@pytest.mark.parametrize("laboratory", ALL, indirect=True, ids=str)
def test_a_client_sees_that_the_sidecar_is_killed(laboratory: Lab) -> None:
    """Or does not see it: as the recipe says."""
    check(laboratory, killed(Place(laboratory.proxy, laboratory.fail_open)))
