"""The same envoy.yaml on each Envoy that it is meant for."""

from collections.abc import Iterator

import pytest

from tests.proxies.envoy_versions import VERSIONS, of_version
from tests.proxies.lab import CONFIG, Background, Lab, a_session, background
from tests.proxies.matrix import SCENARIOS, Scenario, check
from tests.proxies.process import running

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
PLAYED = ("allowed", "refused", "store away")


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    """One sidecar, and an application, for all of them."""
    with background(tmp_path_factory.mktemp("sidecar"), CONFIG) as started:
        yield started


@pytest.fixture(scope="module", params=VERSIONS)
def laboratory(
    request: pytest.FixtureRequest, behind: Background, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """That of each version."""
    proxy = of_version(request.param)
    with running(proxy, tmp_path_factory.mktemp(proxy.name)) as log:
        yield Lab(proxy, True, behind.sidecar, behind.store, log)


@pytest.mark.parametrize("scenario", [BY_NAME[name] for name in PLAYED], ids=lambda s: s.name)
def test_the_headers_reach_the_client(laboratory: Lab, scenario: Scenario) -> None:
    """Those of a 429 also with 1.37.0, which filters them by what is meant for the application."""
    check(laboratory, scenario)


def test_the_application_sees_what_the_client_sent_and_nothing_of_the_sidecar(laboratory: Lab) -> None:
    """The names that Envoy and the sidecar use between them are nobody's way to the application."""
    sent = {"Content-Type": "application/x-own", "Cache-Control": "max-age=7", "Retry-After": "9"}
    forged = {"X-Client-Ip": "7.7.7.7", "X-RateLimit-Limit": "7", "RateLimit": '"x";r=7'}
    reply = laboratory.ask("POST", "/echo", a_session() | sent | forged, b"body")
    heard = dict(line.split(": ", 1) for line in reply.body.decode().lower().split("\r\n")[1:] if line)
    assert {name: heard[name.lower()] for name in sent} == {
        name: value.lower() for name, value in sent.items()
    }
    assert [name for name in heard if "ratelimit" in name or name == "x-client-ip"] == []
