"""Traefik and Caddy in front of a real sidecar: nobody gets by, and nobody is charged twice."""

from collections.abc import Iterator

import pytest

from tests.proxies.caddy import CADDY
from tests.proxies.checks import charged, counted
from tests.proxies.forward_auth import CONFIG, FORGED, UNUSUAL, check_other_refusals
from tests.proxies.lab import LIMITED, Lab, a_session, by_address, lab
from tests.proxies.traefik import TRAEFIK


@pytest.fixture(scope="module", params=[TRAEFIK, CADDY], ids=lambda proxy: str(proxy.name))
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(request.param, tmp_path_factory.mktemp("lab"), config=CONFIG) as running:
        yield running


def test_a_caller_cannot_choose_its_address(laboratory: Lab) -> None:
    """Whatever it sends: three requests are three of one address."""
    assert by_address(laboratory, *FORGED) == [200, 200, 200, 429]


def test_other_refusals_keep_their_status(laboratory: Lab) -> None:
    """A rule that blocks, and one with a status, a body and a content type of its own."""
    check_other_refusals(laboratory)


def test_every_spelling_of_a_route_is_that_route(laboratory: Lab) -> None:
    """Also with the scheme and host before it, which Caddy leaves in what it says."""
    session = a_session()
    spellings = [LIMITED, f"http://other.example{LIMITED}", f"HTTP://h//api/./%76ideos?x{LIMITED}"]
    assert [laboratory.ask("GET", target, session).status for target in spellings] == [200, 200, 429]


@pytest.mark.parametrize(("method", "target", "headers", "body"), UNUSUAL)
def test_every_request_is_charged_once(
    laboratory: Lab, method: str, target: str, headers: dict[str, str], body: bytes | None
) -> None:
    """By the catch-all rule."""
    session = a_session()
    reply = laboratory.ask(method, target, session | headers, body)
    assert (reply.status in (200, 302), charged(laboratory, session)) == (True, 1)


def test_options_star_is_answered_by_the_proxy_itself(laboratory: Lab) -> None:
    """Nobody behind it hears of it, neither sidecar nor application."""
    with counted(laboratory.sidecar) as checks:
        reply = laboratory.ask("OPTIONS", "*")
    assert (reply.status, reply.body, "x-app" in reply.headers, checks.number) == (200, b"", False, 0)
