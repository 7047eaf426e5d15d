"""Spellings of one path, and odd requests, through a real Envoy and straight to the data port.

Whatever reaches the application was counted, by the rule that is meant or by the catch-all.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.envoy_process import APP_PORT, ENVOY_PORT, SIDECAR_PORT, application, envoy, require_free
from tests.http2 import status_of
from tests.raw_http import Reply, ask
from tests.sidecar_process import SidecarProcess

HOUR = {"identifier_type": "session_id", "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "listen": {"authz": f"127.0.0.1:{SIDECAR_PORT}"},
    "default_client": "c",
    "clients": [
        {
            "id": "c",
            "rules": [
                {"id": "videos", "route": "/api/videos", "limit": 10, **HOUR},
                {"id": "all", "route": "/*", "limit": 1000, **HOUR},
            ],
        }
    ],
}
LONG, MANY = 60_000, tuple((f"X-Header-{n}", "v" * 20) for n in range(200))


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory, envoy_binary: Any) -> Iterator[SidecarProcess]:
    require_free(ENVOY_PORT, SIDECAR_PORT, APP_PORT)
    directory = tmp_path_factory.mktemp("envoy")
    with application(), SidecarProcess(directory, CONFIG) as running, envoy(envoy_binary, directory):
        yield running


@pytest.fixture
def session() -> tuple[str, str]:
    """The header that makes this test a caller of its own."""
    return "X-Session-Id", uuid.uuid4().hex


def numbers(reply: Reply) -> tuple[int, int]:
    """Limit and remaining of a request that was allowed."""
    assert reply.status == 200, reply
    return int(reply.headers["x-ratelimit-limit"]), int(reply.headers["x-ratelimit-remaining"])


@pytest.mark.parametrize("port", [ENVOY_PORT, SIDECAR_PORT], ids=["envoy", "data-port"])
@pytest.mark.parametrize(
    "target",
    [
        "/api/videos",
        "//api/videos",
        "/api//videos",
        "/api/./videos",
        "/./api/videos",
        "/api/videos/.",
        "/api/x/../videos",
        "/x/../../api/videos",
        "/api/x/%2e%2e/videos",
        "/api/%2E/videos",
        "/api/%76ideos",
        "/%61%70%69/videos",
        "/api/videos;x=1",
        "/api;x=1/videos",
        "/api/x/..;y/videos",
        "/api/videos/",
        "/api/videos//",
        "/api/videos?x",
        "/api/videos?",
        "/api/videos?/../x",
        "/api/videos?next=http://other.example/free",
        "/api/videos?" + "q" * LONG,
        "/" + "./" * (LONG // 2) + "api/videos",
        "http://absolute.example/api/videos",
        "http://absolute.example:80//api/videos?x=http://y/",
    ],
)
def test_every_spelling_of_a_path_meets_its_rule(
    sidecar: SidecarProcess, session: tuple[str, str], port: int, target: str
) -> None:
    """One counter for all of them: after this spelling and the plain one, two are used."""
    prefixed = target if port == ENVOY_PORT else _prefixed(target)
    assert numbers(ask(port, "GET", prefixed, [session])) == (10, 9)
    assert numbers(ask(SIDECAR_PORT, "GET", "/authz/api/videos", [session])) == (10, 8)


@pytest.mark.parametrize("port", [ENVOY_PORT, SIDECAR_PORT], ids=["envoy", "data-port"])
@pytest.mark.parametrize(
    ("request_line", "headers"),
    [
        ("PROPFIND /x", ()),
        ("TRACE /x", ()),
        ("OPTIONS /x", ()),
        ("MKCALENDAR /x", ()),
        ("GET /", ()),
        ("GET /API/VIDEOS", ()),
        ("GET /api/videos.json", ()),
        ("GET /api/videos%20", ()),
        ("GET /%c3%a9", ()),
        ("GET /a%zz%", ()),
        ('GET /<>"{}|^`', ()),
        ("GET /" + "a" * LONG, ()),
        ("GET /" + "a/" * (LONG // 2), ()),
        ("GET /x", MANY),
        ("GET /x", (("Cookie", "c" * LONG),)),
        ("GET /x", (("Expect", "foo"),)),
        ("GET /x", (("User-Agent", "\xff\xfe"),)),
        ("GET /x", (("Host", "a,b"),)),
        ("GET /x", (("Host", ""),)),
        ("GET /x", (("Upgrade", "websocket"), ("Connection", "Upgrade"))),
        ("GET /x", (("X-HTTP-Method-Override", "OPTIONS"), ("X-Original-URL", "/free"))),
        ("GET /x?cost=0", ()),
    ],
)
def test_every_odd_request_meets_the_catch_all(
    sidecar: SidecarProcess, session: tuple[str, str], port: int, request_line: str, headers: Any
) -> None:
    """None is answered by the framework, and none passes uncounted."""
    method, _, target = request_line.partition(" ")
    prefixed = target if port == ENVOY_PORT else _prefixed(target)
    assert numbers(ask(port, method, prefixed, [session, *headers])) == (1000, 999)
    assert numbers(ask(SIDECAR_PORT, "GET", "/authz/y", [session])) == (1000, 998)


@pytest.mark.parametrize(
    "target", ["/api%2Fvideos", "/api%5Cvideos", "/api/\x80", "/caf\xc3\xa9", "/x#fragment", "/a%00b", "*"]
)
def test_what_envoy_refuses_itself_reaches_nobody(
    sidecar: SidecarProcess, session: tuple[str, str], target: str
) -> None:
    """400 without asking the sidecar, so it costs the caller nothing and the application neither."""
    reply = ask(ENVOY_PORT, "GET", target, [session])
    assert (reply.status, "x-app" in reply.headers) == (400, False)
    assert numbers(ask(SIDECAR_PORT, "GET", "/authz/y", [session])) == (1000, 999)


@pytest.mark.parametrize(
    ("method", "target", "left"),
    [
        ("GET", b"/caf\xc3\xa9", 999),
        ("GET", b"/x?q=caf\xc3\xa9", 999),
        ("GET", b"/x?q=\xff", 999),
        ("FOO", b"/x", 999),
        ("get", b"/x", 999),
        ("VERSION-CONTROL", b"/x?\xc3\xa9", 999),
        ("GET", b"/api/%76ideos?\xc3\xa9", 9),
        ("FOO", b"//api/videos", 9),
    ],
)
def test_what_only_http_2_can_send_is_counted_too(
    sidecar: SidecarProcess, session: tuple[str, str], method: str, target: bytes, left: int
) -> None:
    """Envoy passes on raw UTF-8 in a query and any method; a 400 of the framework would end the request."""
    name, value = session
    fields = [
        (":method", method.encode()),
        (":scheme", b"http"),
        (":path", target),
        (":authority", b"h"),
        (name.lower(), value.encode()),
    ]
    assert status_of(ENVOY_PORT, fields) == 200
    plain = "/authz/api/videos" if left == 9 else "/authz/y"
    assert numbers(ask(SIDECAR_PORT, "GET", plain, [session]))[1] == left - 1


def _prefixed(target: str) -> str:
    """The target as Envoy would hand it over; in the absolute form the prefix is within it."""
    scheme, separator, rest = target.partition("://")
    if separator and scheme == "http":
        host, slash, path = rest.partition("/")
        return f"http://{host}/authz{slash}{path}"
    return f"/authz{target}"
