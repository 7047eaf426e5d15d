"""What one request of a client is charged behind Envoy: once, also where Envoy does something twice."""

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sidecar.infrastructure.recipes import Recipe
from tests.proxies.checks import charged, counted
from tests.proxies.envoy import ENVOY
from tests.proxies.envoy_variants import ask_at, front, recipe_with, route, service
from tests.proxies.lab import LIMIT, LIMITED, Lab, a_session, lab
from tests.proxies.process import running
from tests.raw_http import ask
from tests.tcp_server import BackendServer, serving

DEFAULTS: dict[str, Any] = {}
#: All that changes what is said or counted and is off by default.
EVERYTHING = {
    "response": {"envoy_ratelimited": True, "ietf_headers": True},
    "count_preflights": False,
}
RETRIES = {"retry_on": "retriable-status-codes", "retriable_status_codes": [429], "num_retries": 2}
PREFLIGHT = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}

BOTH = pytest.mark.parametrize("laboratory", [DEFAULTS, EVERYTHING], indirect=True, ids=["plain", "all"])
PLAIN = pytest.mark.parametrize("laboratory", [DEFAULTS], indirect=True, ids=["plain"])


@pytest.fixture(scope="module")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The recipe unchanged, and the sidecar with these settings."""
    with lab(ENVOY, tmp_path_factory.mktemp("recipe"), config=request.param) as started:
        yield started


def has_everything(laboratory: Lab) -> bool:
    return "ratelimit" in laboratory.ask("GET", "/", a_session()).headers


@BOTH
def test_a_front_envoy_that_retries_429_is_told_not_to(laboratory: Lab, tmp_path: Path) -> None:
    """By X-Envoy-RateLimited: one check. Without it each retry is a check, and a charge when it fits."""
    session, (proxy, port) = a_session(), front(RETRIES)
    told = has_everything(laboratory)
    with running(proxy, tmp_path):
        assert [ask(port, "GET", LIMITED, session).status for _ in range(LIMIT)] == [200] * LIMIT
        with counted(laboratory.sidecar) as checks:
            refused = ask(port, "GET", LIMITED, session)
    assert refused.status == 429
    assert checks.number == (1 if told else 3)


@BOTH
def test_what_the_sidecar_is_told_to_say_reaches_the_client(laboratory: Lab) -> None:
    """The IETF's headers with every answer, X-Envoy-RateLimited with a refusal; else neither."""
    session = a_session()
    *allowed, refused = (laboratory.ask("GET", LIMITED, session).headers for _ in range(LIMIT + 1))
    ietf = {"ratelimit", "ratelimit-policy"} if has_everything(laboratory) else set()
    names = {"ratelimit", "ratelimit-policy", "x-envoy-ratelimited"}
    assert [names & headers.keys() for headers in allowed] == [ietf] * LIMIT
    assert names & refused.keys() == ietf | ({"x-envoy-ratelimited"} if ietf else set())


@BOTH
def test_a_preflight_is_free_if_it_shall_be_and_the_sidecar_can_see_that_it_is_one(
    laboratory: Lab, tmp_path: Path
) -> None:
    """`count_preflights: false` needs two more headers, which the recipe for it passes."""
    seeing = Recipe(passed_headers=("x-session-id", "origin", "access-control-request-method"))
    proxy, port = recipe_with(lambda configuration: None, seeing)
    unseen, seen = a_session(), a_session()
    free = has_everything(laboratory)
    with running(proxy, tmp_path):
        assert laboratory.ask("OPTIONS", "/x", unseen | PREFLIGHT).status == 200
        assert ask(port, "OPTIONS", "/x", seen | PREFLIGHT).status == 200
    assert (charged(laboratory, unseen), charged(laboratory, seen)) == (1, 0 if free else 1)


@PLAIN
def test_retries_of_the_route_are_charged_once(laboratory: Lab, tmp_path: Path) -> None:
    """Three tries at the application are one request of the client."""

    def retrying(configuration: Any) -> None:
        route(configuration)["retry_policy"] = {"retry_on": "5xx", "num_retries": 2}

    session, (proxy, port) = a_session(), recipe_with(retrying)
    with running(proxy, tmp_path), counted(laboratory.sidecar) as checks:
        assert ask(port, "GET", "/own-503", session).status == 503
    assert laboratory.asked.count(b"/own-503") == 3
    assert (checks.number, charged(laboratory, session)) == (1, 1)


@PLAIN
def test_a_redirect_goes_to_the_client(laboratory: Lab) -> None:
    """Who follows it, or does not: one request, one charge."""
    session = a_session()
    with counted(laboratory.sidecar) as checks:
        assert (
            laboratory.ask("GET", "/redirects", session).headers["location"]
            == "http://test.example/redirected"
        )
    assert (checks.number, charged(laboratory, session)) == (1, 1)


@PLAIN
def test_a_redirect_within_envoy_is_charged_twice(laboratory: Lab, tmp_path: Path) -> None:
    """Which is why the recipe has no internal_redirect_policy: Envoy runs all filters again."""

    def redirecting(configuration: Any) -> None:
        route(configuration)["internal_redirect_policy"] = {"max_internal_redirects": 1}

    session, (proxy, port) = a_session(), recipe_with(redirecting)
    with running(proxy, tmp_path), counted(laboratory.sidecar) as checks:
        assert ask(port, "GET", "/redirects", session).body.startswith(b"GET /redirected ")
    assert (checks.number, charged(laboratory, session)) == (2, 2)


@PLAIN
def test_a_check_whose_answer_is_lost_is_not_asked_again(laboratory: Lab, tmp_path: Path) -> None:
    """It may have been charged; with a retry_policy of the service it could be so twice."""
    with answers_nothing() as (port, asked):
        proxy, edge = recipe_with(lambda configuration: ask_at(configuration, port))
        with running(proxy, tmp_path):
            assert ask(edge, "GET", "/x", a_session()).status == 200
    assert asked == [b"GET /authz/x HTTP/1.1\r\n"]


@PLAIN
def test_a_retry_policy_of_the_service_asks_again(laboratory: Lab, tmp_path: Path) -> None:
    """Which is why the recipe has none."""

    def retrying(configuration: Any) -> None:
        ask_at(configuration, port)
        service(configuration)["server_uri"]["timeout"] = "10s"
        service(configuration)["retry_policy"] = {"retry_on": "reset", "num_retries": 1}

    with answers_nothing() as (port, asked):
        proxy, edge = recipe_with(retrying)
        with running(proxy, tmp_path):
            assert ask(edge, "GET", "/x", a_session()).status == 200
    assert asked == [b"GET /authz/x HTTP/1.1\r\n"] * 2


@contextmanager
def answers_nothing() -> Iterator[tuple[int, list[bytes]]]:
    """A sidecar that is cut off after each check; its port, and the request lines that it got."""
    asked: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline())
            while self.rfile.readline() not in (b"\r\n", b""):
                pass

    server = BackendServer(0, Handler)
    with serving(server):
        yield server.server_address[1], asked
