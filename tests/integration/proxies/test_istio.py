"""Istio's ingress gateway as it would be with deploy/istio: a real Envoy, a real sidecar."""

import pytest

from tests.proxies.checks import counted
from tests.proxies.lab import Lab, a_session, by_address
from tests.proxies.matrix import FAIL_CLOSED, FAIL_OPEN, SCENARIOS, Place, Scenario, check
from tests.proxies.mesh import ISTIO

OPEN = pytest.mark.parametrize("laboratory", [Place(ISTIO, True)], indirect=True)
CLOSED = pytest.mark.parametrize("laboratory", [Place(ISTIO, False)], indirect=True)


@OPEN
@pytest.mark.parametrize("scenario", [*SCENARIOS, FAIL_OPEN], ids=lambda scenario: scenario.name)
def test_a_client_sees(laboratory: Lab, scenario: Scenario) -> None:
    """Status, headers, and whether its connection is kept."""
    check(laboratory, scenario)


@OPEN
def test_what_applications_read_in_two_ways_is_refused(laboratory: Lab) -> None:
    """By the gateway itself: nobody is asked."""
    with counted(laboratory.sidecar) as checks:
        assert [laboratory.ask("GET", target).status for target in ("/a%2Fb", "/a%5cb")] == [400, 400]
    assert checks.number == 0


@OPEN
def test_a_caller_cannot_choose_its_address(laboratory: Lab) -> None:
    """Whatever it sends, the gateway says who is connected: four requests are four of one address."""
    assert by_address(laboratory, "X-Client-IP", "X-Forwarded-For") == [200, 200, 200, 429]


@OPEN
def test_the_applications_own_numbers_would_stand_beside_ours(laboratory: Lab) -> None:
    """As the recipe says, which is why it says what removes them."""
    fields = laboratory.ask("GET", "/own-limits", a_session()).fields
    assert [value for name, value in fields if name == "x-ratelimit-limit"] == ["77", "1000"]


@CLOSED
def test_fail_closed_means_that_nobody_passes_without_the_sidecar(laboratory: Lab) -> None:
    """They get the status that the manifest says."""
    check(laboratory, FAIL_CLOSED)
