"""What tests of Traefik, Caddy and HAProxy share: all ask at `/forward-auth`, and hand refusals on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.lab import BY_ADDRESS, HOUR, LIMITED, Lab, a_session
from tests.proxies.process import PROXY_PORT
from tests.proxies.scripted import Front
from tests.raw_http import Connection, Reply, connections

#: Whatever a caller could hope that somebody believes.
FORGED = {
    name: f"9.9.9.{n}"
    for n, name in enumerate(
        (
            "X-Forwarded-For",
            "X-Forwarded-Method",
            "X-Forwarded-Uri",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Forwarded-Prefix",
            "X-Client-Ip",
            "X-Real-Ip",
            "X-User-Id",
            "X-Jwt-Payload",
            "X-Sidecar-Secret",
            "X_Forwarded_For",
            "X_User_Id",
            "X.User.Id",
            "X-Original-Uri",
            "X-Original-Method",
            "X-HTTP-Method-Override",
            "X-Envoy-External-Address",
            "Forwarded",
        )
    )
}
#: The rules of `lab.CONFIG`, one that blocks, and one that refuses in its own words.
CONFIG: dict[str, Any] = {
    "clients": [
        {
            "id": "c",
            "rules": [
                {"id": "videos", "route": LIMITED, "identifier_type": "session_id", "limit": 2, **HOUR},
                {"id": "all", "route": "/*", "identifier_type": "session_id", "limit": 1000, **HOUR},
                {"id": "address", "route": BY_ADDRESS, "identifier_type": "ip", "limit": 3, **HOUR},
                {"id": "closed", "route": "/closed", "mode": "block"},
                {
                    "id": "tea",
                    "route": "/tea",
                    "identifier_type": "session_id",
                    "limit": 1,
                    **HOUR,
                    "response": {"status": 418, "body": "no tea\n", "content_type": "text/x-tea"},
                },
            ],
        }
    ]
}
#: Method, target, headers and body of requests that are all `/*` and nothing else.
UNUSUAL: list[tuple[str, str, dict[str, str], bytes | None]] = [
    ("GET", "/x", {}, None),
    ("HEAD", "/x", {}, None),
    ("PROPFIND", "/x", {}, None),
    ("OPTIONS", "/x", {}, None),
    ("GET", "http://test.example", {}, None),
    ("GET", "http://test.example/x?y=/closed", {}, None),
    ("GET", "//x", {}, None),
    ("GET", "/tea/../x", {}, None),
    ("GET", "/x?a=%2F%5C", {}, None),
    ("GET", "/x", {"User-Agent": "\xff\xfe"}, None),
    ("GET", "/x", {f"X-Header-{n}": "v" * 20 for n in range(200)}, None),
    ("GET", "/x", {"Cookie": "c" * 97_000}, None),
    ("GET", "/redirects", {}, None),
    ("POST", "/" + "x" * 60_000, {}, b"x" * 2_000_000),
]


def write(proxy: str, directory: Path, fail_open: bool, values: Mapping[str, Any]) -> None:
    """The files of a recipe that `sidecar recipe` could give."""
    for name, text in render(proxy, Recipe(fail_open=fail_open, **values)).items():
        (directory / name).write_text(text)


def check_other_refusals(lab: Lab) -> None:
    """Of the rule that blocks, and of the one with its own words."""
    session = a_session()
    blocked = lab.ask("GET", "/closed", session)
    assert (blocked.status, blocked.json["detail"]) == (403, "requests of this kind are blocked")
    assert lab.ask("GET", "/tea", session).status == 200
    tea = lab.ask("GET", "/tea", session)
    assert (tea.status, tea.headers["content-type"], tea.body) == (418, "text/x-tea", b"no tea\n")
    assert tea.headers["x-ratelimit-rule"] == "tea"


def check_connections(proxy: Front) -> None:
    """A hundred checks one after the other need none more; of callers at once each needs its own at most."""
    proxy.ask()
    before = proxy.sidecar.accepted
    with Connection(PROXY_PORT) as connection:
        for _ in range(100):
            assert connection.ask("GET", "/x").status == 200
    assert proxy.sidecar.accepted == before
    with connections(PROXY_PORT, 10) as callers:
        for _ in range(20):
            for caller in callers:
                caller.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            assert [caller.answer().status for caller in callers] == [200] * 10
    assert proxy.sidecar.accepted <= before + 10


def ask_while_it_hangs(proxy: Front) -> Reply:
    """A POST that nobody decides: it passes with its body, was asked about once, and claims no login."""
    proxy.sidecar.answering.clear()
    try:
        with Connection(PROXY_PORT) as connection:
            reply = connection.ask("POST", "/x", FORGED, b"abc")
    finally:
        proxy.sidecar.answering.set()
    assert (reply.status, reply.headers["x-app-received"], len(proxy.sidecar.heads)) == (200, "3", 1)
    assert "x-user-id" not in fields(reply.body)
    return reply


def fields(head: bytes) -> dict[str, str]:
    """Lower-case names; one that stands twice is a failure."""
    lines = head.decode("latin-1").rstrip().split("\r\n")[1:]
    pairs = [(line.partition(":")[0].lower(), line.partition(":")[2].strip()) for line in lines]
    assert len(pairs) == len(dict(pairs)), head
    return dict(pairs)
