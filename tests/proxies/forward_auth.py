"""What Traefik's tests and Caddy's have in common: both ask at `/forward-auth`, and both hand refusals on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.lab import BY_ADDRESS, HOUR, LIMITED

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


def fields(head: bytes) -> dict[str, str]:
    """Lower-case names; one that stands twice is a failure."""
    lines = head.decode("latin-1").rstrip().split("\r\n")[1:]
    pairs = [(line.partition(":")[0].lower(), line.partition(":")[2].strip()) for line in lines]
    assert len(pairs) == len(dict(pairs)), head
    return dict(pairs)
