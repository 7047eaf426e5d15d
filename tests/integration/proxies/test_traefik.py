"""What is Traefik's own: what it asks and hands on, and when it does not ask.

The sidecar's place is taken by one that answers as the test says.
"""

import sys
from collections.abc import Iterator

import pytest

from tests.proxies.forward_auth import FORGED, ask_while_it_hangs, check_connections, fields
from tests.proxies.process import PROXY_PORT
from tests.proxies.scripted import Front, front
from tests.proxies.traefik import TRAEFIK
from tests.raw_http import Connection

NUMBERS = {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "60"}
#: Traefik's own entry point that asks the sidecar.
ASKING_PORT = 10001


@pytest.fixture(scope="module")
def _traefik(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front(TRAEFIK, tmp_path_factory.mktemp("traefik")) as running:
        yield running


@pytest.fixture
def traefik(_traefik: Front) -> Front:
    """Which has asked for nothing yet; everything is allowed."""
    _traefik.sidecar.heads.clear()
    _traefik.sidecar.answers(200, NUMBERS | {"Server": "sidecar"})
    return _traefik


def test_the_check_is_what_traefik_saw(traefik: Front) -> None:
    """And the few headers that the sidecar reads of the client's; nothing that a caller made up."""
    own = {"X-Session-Id": "s", "Cookie": "a=b", "User-Agent": "me", "Accept": "*/*"}
    traefik.ask("POST", "/api/videos?cost=0&x=%2F", FORGED | own | {"Host": "API.example:81"})
    [head] = traefik.sidecar.heads
    assert head.startswith(b"GET /forward-auth HTTP/1.1\r\n")
    said = fields(head)
    assert said.pop("x-forwarded-server")  # the machine's name
    assert said == {
        "host": f"127.0.0.1:{ASKING_PORT}",
        "x-forwarded-method": "POST",
        "x-forwarded-uri": "/api/videos?cost=0&x=%2F",
        "x-forwarded-host": "API.example:81",
        "x-forwarded-port": "81",
        "x-forwarded-proto": "http",
        "x-forwarded-for": "127.0.0.1",
        "x-real-ip": "127.0.0.1",
        "x-session-id": "s",
        "cookie": "a=b",
        "user-agent": "me",
        "accept-encoding": "gzip",
    }


def test_the_address_is_the_callers(traefik: Front) -> None:
    """In X-Forwarded-For alone: X-Real-IP is Traefik's own, because it asks through itself."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has all of 127.0.0.0/8")
    with Connection(PROXY_PORT, source="127.0.0.9") as connection:
        connection.ask("GET", "/x", FORGED)
    said = fields(traefik.sidecar.heads[0])
    assert (said["x-forwarded-for"], said["x-real-ip"]) == ("127.0.0.9", "127.0.0.1")


def test_the_application_hears_of_nobody_else(traefik: Front) -> None:
    """No login, no address but that of who is connected, and no name that only looks like another."""
    said = fields(traefik.ask("GET", "/x", FORGED | {"X-Own": "mine"}).body)
    assert [said[name] for name in ("x-forwarded-for", "x-real-ip", "x-own")] == [
        "127.0.0.1",
        "127.0.0.1",
        "mine",
    ]
    assert not {"x-user-id", "x-jwt-payload", "x-client-ip", "x-forwarded-uri"} & said.keys()
    assert not [name for name in said if "_" in name or "." in name]


def test_a_refusal_is_handed_on_whole(traefik: Front) -> None:
    """Status, body and every header; HEAD gets no body."""
    own = NUMBERS | {"Retry-After": "7", "Cache-Control": "no-store", "Content-Type": "text/x-own"}
    own |= {"RateLimit": '"r";r=0;t=7', "Server": "sidecar"}
    traefik.sidecar.answers(429, own, b"too many")
    for method, body in (("GET", b"too many"), ("HEAD", b"")):
        refused = traefik.ask(method)
        assert (refused.status, refused.body) == (429, body)
        assert {name.lower(): value for name, value in own.items()}.items() <= refused.headers.items()


@pytest.mark.parametrize("status", [302, 401, 403, 404, 500, 503])
def test_an_answer_of_another_kind_is_the_clients(traefik: Front, status: int) -> None:
    """A 503 too: a rule that denies while its store is away is not undone by failing open."""
    traefik.sidecar.answers(status)
    reply = traefik.ask()
    assert (reply.status, "x-app" in reply.headers) == (status, False)


def test_numbers_of_an_allowed_request_do_not_reach_the_client(traefik: Front) -> None:
    """Traefik has no way for it; the application's own are left as they are."""
    assert [name for name in traefik.ask().headers if "ratelimit" in name] == []
    assert traefik.ask("GET", "/own-limits").headers["x-ratelimit-limit"] == "77"


def test_checks_share_connections(traefik: Front) -> None:
    """A hundred one after the other need none more; of callers at once each needs its own at most."""
    check_connections(traefik)


def test_a_sidecar_that_hangs_is_not_waited_for(traefik: Front) -> None:
    """It is asked once; the request passes with its body."""
    ask_while_it_hangs(traefik)


@pytest.mark.parametrize("target", ["/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/%2F?x"])
def test_what_some_read_as_a_slash_is_refused(traefik: Front, target: str) -> None:
    """By Traefik itself: nobody is asked."""
    assert (traefik.ask("GET", target).status, traefik.sidecar.heads) == (400, [])


def test_the_entry_point_that_asks_is_for_nothing_else(traefik: Front) -> None:
    """No other path of the sidecar's is to be had there."""
    with Connection(ASKING_PORT) as connection:
        for target in ("/", "/v1/evaluate", "/health", "/ping", "/forward-auth/x", "/clients/c/forward-auth"):
            assert connection.ask("GET", target).status == 404
    assert not traefik.sidecar.heads
