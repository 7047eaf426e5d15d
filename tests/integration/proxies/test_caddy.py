"""What is Caddy's own: what it asks and hands on, and when it does not ask.

The sidecar's place is taken by one that answers as the test says.
"""

from collections.abc import Iterator

import pytest

from tests.proxies.caddy import CADDY
from tests.proxies.forward_auth import FORGED, ask_while_it_hangs, check_connections, fields
from tests.proxies.scripted import Front, front

NUMBERS = {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "60"}


@pytest.fixture(scope="module")
def _caddy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front(CADDY, tmp_path_factory.mktemp("caddy")) as running:
        yield running


@pytest.fixture
def caddy(_caddy: Front) -> Front:
    """Which has asked for nothing yet; everything is allowed."""
    _caddy.sidecar.heads.clear()
    _caddy.sidecar.answers(200, NUMBERS | {"Server": "sidecar"})
    return _caddy


def test_the_check_is_what_caddy_saw(caddy: Front) -> None:
    """And the few headers that the sidecar reads of the client's; nothing that a caller made up."""
    own = {"X-Session-Id": "s", "Cookie": "a=b", "X-Api-Key": "{http.vars.root_dir}", "Accept": "*/*"}
    caddy.ask("POST", "/api/videos?cost=0&x=%2F", FORGED | own | {"Host": "API.example:81"})
    [head] = caddy.sidecar.heads
    assert head.startswith(b"GET /forward-auth HTTP/1.1\r\n")
    said = fields(head)
    assert {name: value for name, value in said.items() if value} == {
        "host": "127.0.0.1:8000",
        "x-forwarded-method": "POST",
        "x-forwarded-uri": "/api/videos?cost=0&x=%2F",
        "x-forwarded-host": "API.example:81",
        "x-client-ip": "127.0.0.1",
        "x-session-id": "s",
        "cookie": "a=b",
        "x-api-key": "{http.vars.root_dir}",
        "accept-encoding": "gzip",
    }


def test_the_application_hears_of_nobody_else(caddy: Front) -> None:
    """No login, and no address but that of who is connected; what is none of ours passes."""
    reply = caddy.ask("GET", "/x", FORGED | {"X-Own": "mine"})
    said = fields(reply.body)
    names = ("x-client-ip", "x-real-ip", "x-forwarded-for", "x-own")
    assert [said[name] for name in names] == ["127.0.0.1", "127.0.0.1", "127.0.0.1", "mine"]
    assert not {"x-user-id", "x-jwt-payload"} & said.keys()


def test_a_second_cookie_line_makes_no_other_session(caddy: Front) -> None:
    """Caddy joins lines by commas; of cookies that would be one longer value."""
    caddy.ask("GET", "/x", [("Cookie", "session_id=a"), ("Cookie", "b=c; d=e")])
    assert fields(caddy.sidecar.heads[0])["cookie"] == "session_id=a;b=c; d=e"


def test_a_refusal_is_handed_on_whole(caddy: Front) -> None:
    """Status, body and every header but the sidecar's name; HEAD gets no body."""
    own = NUMBERS | {"Retry-After": "7", "Cache-Control": "no-store", "Content-Type": "text/x-own"}
    caddy.sidecar.answers(429, own | {"RateLimit": '"r";r=0;t=7', "Server": "sidecar"}, b"too many")
    for method, body in (("GET", b"too many"), ("HEAD", b"")):
        refused = caddy.ask(method)
        assert (refused.status, refused.body) == (429, body)
        assert {name.lower(): value for name, value in own.items()}.items() <= refused.headers.items()
        assert refused.headers["ratelimit"] == '"r";r=0;t=7'
        assert "sidecar" not in refused.headers.values()


@pytest.mark.parametrize("status", [201, 204, 302, 401, 403, 404, 500, 503])
def test_nothing_but_200_lets_a_request_pass(caddy: Front, status: int) -> None:
    """A 503 too: a rule that denies while its store is away is not undone by failing open."""
    caddy.sidecar.answers(status)
    reply = caddy.ask()
    assert (reply.status, "x-app" in reply.headers) == (status, False)


def test_the_sidecars_numbers_replace_the_applications(caddy: Front) -> None:
    """Where it has none, nobody has; no placeholder is seen."""
    assert caddy.ask("GET", "/own-limits").headers["x-ratelimit-limit"] == "10"
    caddy.sidecar.answers(200)
    bare = caddy.ask("GET", "/own-limits")
    assert (bare.status, [name for name in bare.headers if "ratelimit" in name]) == (200, [])


def test_checks_share_connections(caddy: Front) -> None:
    """A hundred one after the other need none more; of callers at once each needs its own at most."""
    check_connections(caddy)


def test_a_sidecar_that_hangs_is_not_waited_for(caddy: Front) -> None:
    """It is asked once; the request passes with its body, and without numbers."""
    reply = ask_while_it_hangs(caddy)
    assert "x-ratelimit-limit" not in reply.headers


@pytest.mark.parametrize("target", ["/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/%2F?x"])
def test_what_some_read_as_a_slash_is_refused(caddy: Front, target: str) -> None:
    """By Caddy itself: nobody is asked."""
    assert (caddy.ask("GET", target).status, caddy.sidecar.heads) == (400, [])
