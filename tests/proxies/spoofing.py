"""What a caller writes to be counted as somebody else, or not at all, a thousand times with other values.

Each lie is the headers of one request. None may find a counter of its own: in `CONFIG` every rule comes down
to the address, and there is no limit for whoever gets at another route, method or host.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.proxies.lab import HOUR, Lab
from tests.raw_http import request

Fields = list[tuple[str, str]]

#: What each route admits of one address, whatever its rule would rather count by.
LIMIT = 20
ROUTES = {
    "/by-address": "ip",
    "/by-user": "user_id",
    "/by-claim": "jwt_claim:sub",
    "/by-session": "session_id",
    "/by-key": "header:x-api-key",
}
#: Another method, path or host than these has no rule, so that whoever can lie about it is free.
CONFIG: dict[str, Any] = {
    "clients": [
        {
            "id": "c",
            "rules": [
                {
                    "id": route.strip("/"),
                    "route": route,
                    "method": "GET",
                    "identifier_type": kind,
                    "limit": LIMIT,
                    **HOUR,
                }
                for route, kind in ROUTES.items()
            ],
        },
        {"id": "unlimited", "hosts": ["unlimited.example"], "rules": []},
    ]
}

_ADDRESS_HEADERS = (
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Client-Ip",
    "X-Envoy-External-Address",
    "X-Cluster-Client-Ip",
    "True-Client-Ip",
    "Cf-Connecting-Ip",
)
_TARGETS = {
    "X-Original-URI": "/free",
    "X-Original-URL": "http://unlimited.example/free",
    "X-Original-Method": "PUT",
    "X-Forwarded-Uri": "/free",
    "X-Forwarded-Method": "PUT",
    "X-Forwarded-Host": "unlimited.example",
    "X-Forwarded-Server": "unlimited.example",
    "X-Forwarded-Prefix": "/free",
    "X-Rewrite-Url": "/free",
    "X-HTTP-Method-Override": "PUT",
    "X-HTTP-Method": "PUT",
    "X-Method-Override": "PUT",
    "X-Envoy-Original-Path": "/free",
}


def _address(n: int) -> str:
    return f"9.9.{n // 250}.{n % 250 + 1}"


def _payload(n: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({"sub": f"user-{n}"}).encode()).decode().rstrip("=")


def addresses(n: int) -> Fields:
    forwarded = [("Forwarded", f"for={_address(n)};host=unlimited.example;proto=https")]
    return [(name, _address(n)) for name in _ADDRESS_HEADERS] + forwarded


def chains(n: int) -> Fields:
    """Several entries, on one line and on several; IPv6 with all that may stand around an address."""
    entries = (f"{_address(n)}, 127.0.0.1", f"[2001:db8:{n:x}::1]:4711", f"::ffff:{_address(n)}", "unknown")
    return [(name, entry) for name in ("X-Forwarded-For", "X-Client-Ip", "X-Real-IP") for entry in entries]


def targets(n: int) -> Fields:
    return [(name, f"{value}{n}" if value[0] == "/" else value) for name, value in _TARGETS.items()]


def identities(n: int) -> Fields:
    return [("X-User-Id", str(n + 1)), ("X-JWT-Payload", _payload(n)), ("X-Sidecar-Secret", f"guess-{n}")]


def identities_twice(n: int) -> Fields:
    names = ("X-User-Id", "X-Session-Id", "X-Api-Key")
    return [(name, f"{n}{which}") for which in "ab" for name in names]


def identities_joined(n: int) -> Fields:
    return [(name, f"a{n},b{n}") for name in ("X-User-Id", "X-Session-Id", "X-Api-Key", "X-JWT-Payload")]


def hop_by_hop(n: int) -> Fields:
    """Named in `Connection`, a header ends at the next hop: the proxy's own should not."""
    named = "X-Client-Ip, X-Original-URI, X-Original-Method, X-Forwarded-Uri, X-Forwarded-Method"
    return [("Connection", f"keep-alive, {named}"), *addresses(n)]


def hop_by_hop_address(n: int) -> Fields:
    return [("Connection", "keep-alive, X-Forwarded-For, X-Forwarded-Host, X-Real-Ip, Host"), *addresses(n)]


def other_spellings(n: int) -> Fields:
    """What some applications, and CGI, read as the names with hyphens."""
    names = ("X_Forwarded_For", "X_Client_Ip", "X_User_Id", "X_Session_Id", "X.User.Id", "X.Client.Ip")
    return [(name, str(n + 1) if name.endswith("Id") else _address(n)) for name in names]


def everything(n: int) -> Fields:
    return addresses(n) + chains(n) + targets(n) + identities(n) + identities_twice(n)


LIES: tuple[Callable[[int], Fields], ...] = (
    addresses,
    chains,
    targets,
    identities,
    identities_twice,
    identities_joined,
    hop_by_hop,
    hop_by_hop_address,
    other_spellings,
    everything,
)
QUERIES = ("", "?cost=0", "?cost=0&limit=9999&rule=free&client=unlimited&dry_run=1", "?/../free")


class Told(NamedTuple):
    lie: str
    route: str
    status: int


def tell(lab: Lab, requests: int) -> list[Told]:
    """So many requests, on one connection as long as the proxy keeps it, each with other values.

    Every route is asked with every lie, and every lie with every query.
    """
    told: list[Told] = []
    connection = lab.connect()
    for n in range(requests):
        route, lie = list(ROUTES)[n % len(ROUTES)], LIES[n // len(ROUTES) % len(LIES)]
        reply = connection.ask("GET", route + QUERIES[n % len(QUERIES)], lie(n))
        told.append(Told(lie.__name__, route, reply.status))
        if ("connection", "close") in reply.fields:
            connection.close()
            connection = lab.connect()
    connection.close()
    return told


def hostile(n: int) -> dict[str, Fields]:
    """Lies that are hard to read, as latin-1 text of the bytes that are sent; other ones for each `n`."""
    forged = ("X-Forwarded-For", "X-Client-Ip", "X-Real-IP", "X-User-Id", "X-JWT-Payload", "Forwarded")
    long = f"{_address(n)}, " * 1000
    return {
        "no UTF-8": [(name, f"\xff\xfe\x80{_address(n)}") for name in forged],
        "empty": [(name, "") for name in (*forged, "X-Session-Id", "X-Api-Key")],
        "8 kB": [(name, long[: 8000 + n]) for name in forged],
        "100 addresses": [("X-Forwarded-For", _address(n + line)) for line in range(100)],
        "100 sessions": [("X-Session-Id", f"{n}-{line}") for line in range(100)],
        "control characters": [(name, f"\x01{_address(n)}\x7f") for name in forged],
        "separators": [(name, f'{n}:a|b;c="d" {{e}} %00%0d%0a$(f)') for name in forged],
    }


def status(lab: Lab, target: str, fields: Fields) -> int:
    """Of one request on a connection of its own; some proxies end a refusal of theirs by closing it."""
    with lab.connect() as connection:
        connection.send(request("GET", target, fields))
        return int(connection.received(12).removeprefix(b"HTTP/1.1 "))
