"""The data port of a real sidecar with a real store, byte by byte: Envoy's dialect."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.raw_http import Connection, Reply, request
from tests.sidecar_process import SidecarProcess

TEN = {"route": "/*", "identifier_type": "ip", "limit": 10, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "clients": [
        {"id": "c", "rules": [{"id": "everything", **TEN}]},
        {"id": "other", "hosts": ["other.example"], "rules": [{"id": "theirs", **TEN, "limit": 7}]},
        {"id": "shut", "rules": [{"id": "nobody", "route": "/*", "mode": "block"}]},
    ],
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


@pytest.fixture
def caller() -> dict[str, str]:
    """The header that makes this test a caller of its own, as Envoy writes it."""
    number = uuid.uuid4().int
    return {"X-Client-IP": f"2001:db8:{number % 65536:x}:{number >> 16 & 65535:x}::1"}


def remaining(reply: Reply) -> int:
    """What is left after a request that was counted."""
    assert (reply.status, reply.body) == (200, b""), reply
    return int(reply.headers["x-ratelimit-remaining"])


def test_allowed_is_200_with_these_headers_and_nothing_else(
    sidecar: SidecarProcess, caller: dict[str, str]
) -> None:
    """No body, no content type: Envoy goes on, NGINX keeps its connection."""
    reply = sidecar.ask("GET", "/authz/x", caller)
    assert (reply.status, reply.body) == (200, b"")
    headers = reply.headers
    assert re.fullmatch("[0-9a-f]{32}", headers.pop("x-request-id"))
    assert headers.pop("date")
    assert headers == {
        "server": "sidecar",
        "x-ratelimit-limit": "10",
        "x-ratelimit-remaining": "9",
        "x-ratelimit-reset": "3600",
        "content-length": "0",
    }


def test_the_eleventh_is_refused_with_these_headers(sidecar: SidecarProcess, caller: dict[str, str]) -> None:
    """One integer Retry-After, the rule, no caching, a problem+json of type quota-exceeded."""
    assert [remaining(sidecar.ask("GET", "/authz/x", caller)) for _ in range(10)] == [*range(9, -1, -1)]
    reply = sidecar.ask("GET", "/authz/x", {**caller, "X-Request-ID": "id-11"})
    headers = reply.headers
    assert reply.status == 429
    assert headers.pop("date")
    assert 3500 < int(headers.pop("retry-after")) <= 3600
    assert 3500 < int(headers.pop("x-ratelimit-reset")) <= 3600
    assert headers == {
        "server": "sidecar",
        "x-request-id": "id-11",
        "x-ratelimit-limit": "10",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-rule": "everything",
        "cache-control": "no-store",
        "content-type": "application/problem+json",
        "content-length": str(len(reply.body)),
    }
    assert reply.json == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "too many requests",
        "violated-policies": ["everything"],
    }


MANY = tuple((f"X-Header-{n}", "v" * 20) for n in range(200))


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("PROPFIND", "/authz/x", ()),
        ("PURGE", "/authz/x", ()),
        ("TRACE", "/authz/x", ()),
        ("DELETE", "/authz/x", ()),
        ("FOO", "/authz/x", ()),
        ("get", "/authz/x", ()),
        ("QUERY", "/authz/x", ()),
        ("OPTIONS", "/authz*", ()),
        ("GET", "/authz", ()),
        ("GET", "/authz?x", ()),
        ("GET", "/authz/", ()),
        ("GET", "/authz//x", ()),
        ("GET", "/authz/a%2Fb", ()),
        ("GET", "/authz/%", ()),
        ("GET", "/authz/%zz%00", ()),
        ("GET", "/authz/../../x", ()),
        ("GET", "/authz/a\\b", ()),
        ("GET", '/authz/<>"{}|^`', ()),
        ("GET", "/authz/x#fragment", ()),
        ("GET", "/authz/caf\xc3\xa9?q=\xc3\xa9", ()),
        ("GET", "/authz/\xff\xfe", ()),
        ("FOO", "/authz/" + "\xc3\xa9" * 30_000, ()),
        ("GET", "/authz/" + "a" * 60_000, ()),
        ("GET", "/authz/" + "a/" * 30_000, ()),
        ("GET", "/authz/" + "%41" * 20_000, ()),
        ("GET", "/authz/x?" + "q" * 60_000, ()),
        ("GET", "http://absolute.example/authz/x", ()),
        ("GET", "http://absolute.example:80/authz/x?y=http://z/authz", ()),
        ("GET", "/authz/x", MANY),
        ("GET", "/authz/x", (("Cookie", "c" * 60_000),)),
        ("GET", "/authz/x", (("Expect", "foo"),)),
        ("GET", "/authz/x", (("Expect", "100-continue"),)),
        ("GET", "/authz/x", (("X-Dup", "1"), ("X-Dup", "2"), ("x-dup", ""))),
        ("GET", "/authz/x", (("X-Session-Id", "caf\xe9 \xff\xfe"), ("User-Agent", "\x80"))),
        ("GET", "/authz/x", (("X-Session-Id", "a\tb"),)),
        ("GET", "/authz/x", (("Host", ""),)),
        ("GET", "/authz/x", (("Host", "a,b"),)),
        ("GET", "/authz/x", (("Host", "user@host:1:2"),)),
        ("GET", "/authz/x", (("Host", "[::1"),)),
        ("GET", "/authz/x", (("Upgrade", "h2c"), ("Connection", "Upgrade, HTTP2-Settings"))),
        ("GET", "/authz/x", (("Accept-Encoding", "gzip, br"), ("TE", "trailers"))),
        ("GET", "/authz/x", (("If-None-Match", "*"), ("Range", "bytes=0-1"))),
    ],
)
def test_whatever_a_proxy_passes_on_is_counted(
    sidecar: SidecarProcess, caller: dict[str, str], method: str, target: str, headers: Any
) -> None:
    """Every method, target and header gets a decision by the catch-all rule, none the framework's answer."""
    reply = sidecar.ask(method, target, [*caller.items(), *headers])
    assert remaining(reply) == 9
    assert remaining(sidecar.ask("GET", "/authz/x", caller)) == 8


def test_what_a_caller_claims_changes_nothing(sidecar: SidecarProcess, caller: dict[str, str]) -> None:
    """No cost, method, client, address or user of its own choosing."""
    claims = {
        "X-HTTP-Method-Override": "OPTIONS",
        "X-Cost": "0",
        "X-Client": "other",
        "X-Client-Id": "other",
        "X-Forwarded-For": "9.9.9.9",
        "X-Real-IP": "9.9.9.9",
        "X-Forwarded-Host": "other.example",
        "X-User-Id": "somebody",
        "X-Admin-Key": "whatever",
    }
    targets = ["/authz/x?cost=0", "/authz/x?client_id=other&cost=0", "/authz/x;cost=0"]
    assert [remaining(sidecar.ask("GET", t, {**caller, **claims})) for t in targets] == [9, 8, 7]


def test_a_pinned_client_is_asked_and_no_other(sidecar: SidecarProcess, caller: dict[str, str]) -> None:
    """Whatever the host says; an unknown one has no rules, and its requests pass uncounted."""
    theirs = {**caller, "Host": "other.example"}
    assert sidecar.ask("GET", "/authz/x", theirs).headers["x-ratelimit-limit"] == "7"
    assert sidecar.ask("GET", "/clients/c/authz/x", theirs).headers["x-ratelimit-limit"] == "10"
    unknown = sidecar.ask("GET", "/clients/nobody/authz/x", theirs)
    assert (unknown.status, unknown.body) == (200, b"")
    assert not [name for name in unknown.headers if name.startswith(("x-ratelimit", "retry-after"))]
    counted = 'requests_total{client="",reason="no_policy",result="allowed",rule=""}'
    assert counted in sidecar.admin("GET", "/metrics", key=None).body.decode()


def test_a_blocked_request_is_a_403(sidecar: SidecarProcess) -> None:
    """With the rule that blocks, and no numbers."""
    reply = sidecar.ask("GET", "/clients/shut/authz/x")
    assert (reply.status, reply.headers["x-ratelimit-rule"]) == (403, "nobody")
    assert reply.json["detail"] == "requests of this kind are blocked"
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense-canary\r\n\r\n",
        b"GET /authz/ca nary HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /authz/canary HTTP/1.1\r\nHost: h\r\ncanary\r\n\r\n",
        b"GET /authz/x HTTP/1.1\r\nHost: h\r\ncanary : x\r\n\r\n",
        b"GET /authz/x HTTP/1.1\r\nHost: h\r\nX-A: \x00canary\r\n\r\n",
        b"GET /authz/x HTTP/1.1\r\nHost: h\r\nContent-Length: canary\r\n\r\n",
        b"GET /authz/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"GET /authz/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"GET /authz/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: canary\r\n\r\n",
        b"GET /authz/x HTTP/3.7\r\nHost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 canary\r\n\r\n",
        request("GET", "/authz/" + "canary" * 100_000),
        request("GET", "/authz/x", {"X-Long": "canary" * 100_000}),
        request("GET", "/authz/x", [(f"X-{n}", "canary") for n in range(2000)]),
    ],
)
def test_what_is_no_http_is_a_400_of_ours_that_repeats_nothing(sidecar: SidecarProcess, sent: bytes) -> None:
    """Then the connection is closed, since nobody knows where the next request would begin."""
    with Connection(sidecar.port) as connection:
        connection.send(sent)
        reply = connection.answer()
        assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")
        assert reply.json["detail"] == "the request is no valid HTTP"
        assert b"canary" not in reply.body + repr(reply.fields).encode()
        assert connection.closed()
