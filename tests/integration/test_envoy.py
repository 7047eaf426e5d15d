"""A real Envoy with the repository's envoy.yaml unchanged, a real sidecar, and an application behind them."""

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.envoy_process import (
    APP_PORT,
    ENVOY_PORT,
    SIDECAR_PORT,
    application,
    envoy,
    require_free,
)
from tests.raw_http import Connection, Headers, Reply, ask
from tests.sidecar_process import SidecarProcess

HOUR = {"algorithm": "sliding_window", "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "listen": {"authz": f"127.0.0.1:{SIDECAR_PORT}"},
    "default_client": "c",
    "clients": [
        {
            "id": "c",
            "rules": [
                {
                    "id": "videos",
                    "route": "/api/videos",
                    "identifier_type": "session_id",
                    "limit": 10,
                    **HOUR,
                },
                {"id": "all", "route": "/*", "identifier_type": "session_id", "limit": 1000, **HOUR},
                {"id": "address", "route": "/address", "identifier_type": "ip", "limit": 3, **HOUR},
                {
                    "id": "short",
                    "route": "/short",
                    "identifier_type": "session_id",
                    "limit": 1,
                    "window_seconds": 2,
                },
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory, envoy_binary: Path) -> Iterator[SidecarProcess]:
    """All three, in the order in which they need each other."""
    require_free(ENVOY_PORT, SIDECAR_PORT, APP_PORT)
    directory = tmp_path_factory.mktemp("envoy")
    with application(), SidecarProcess(directory, CONFIG) as running, envoy(envoy_binary, directory):
        yield running


@pytest.fixture
def session() -> dict[str, str]:
    """The header that makes this test a caller of its own."""
    return {"X-Session-Id": uuid.uuid4().hex}


def through(method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
    """A request to Envoy."""
    return ask(ENVOY_PORT, method, target, headers, body)


def rate_limit(reply: Reply) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name.startswith("x-ratelimit-")}


def requests_counted(sidecar: SidecarProcess, rule: str) -> float:
    """What `/metrics` says about one rule's allowed requests."""
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    labels = f'{{client="c",reason="allowed",result="allowed",rule="{rule}"}}'
    lines = [line for line in page.splitlines() if line.startswith(f"rate_limit_requests_total{labels}")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_the_eleventh_request_is_refused(sidecar: SidecarProcess, session: dict[str, str]) -> None:
    """Ten reach the application, each with its numbers; the eleventh gets a whole refusal from Envoy."""
    for left in range(9, -1, -1):
        reply = through("GET", "/api/videos", session)
        assert (reply.status, reply.headers["x-app"]) == (200, "yes")
        numbers = rate_limit(reply)
        assert 3500 < int(numbers.pop("x-ratelimit-reset")) <= 3600
        assert numbers == {"x-ratelimit-limit": "10", "x-ratelimit-remaining": str(left)}
    refused = through("GET", "/api/videos", session)
    assert (refused.status, "x-app" in refused.headers) == (429, False)
    headers = refused.headers
    assert 3500 < int(headers["retry-after"]) <= 3600
    assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("10", "0")
    assert headers["x-ratelimit-rule"] == "videos"
    assert (headers["content-type"], headers["cache-control"]) == ("application/problem+json", "no-store")
    assert headers["x-request-id"]
    assert refused.json["violated-policies"] == ["videos"]
    assert refused.json["status"] == 429
    assert through("GET", "/api/videos", {"X-Session-Id": uuid.uuid4().hex}).status == 200


def test_waiting_exactly_as_long_as_is_said_lets_the_next_one_pass(
    sidecar: SidecarProcess, session: dict[str, str]
) -> None:
    """Not a second more."""
    assert through("GET", "/short", session).status == 200
    refused = through("GET", "/short", session)
    assert (refused.status, refused.headers["x-ratelimit-rule"]) == (429, "short")
    time.sleep(int(refused.headers["retry-after"]))
    assert through("GET", "/short", session).status == 200


def test_numbers_of_the_application_do_not_stand_beside_ours(
    sidecar: SidecarProcess, session: dict[str, str]
) -> None:
    """It answers X-RateLimit-Limit: 77; two answers to one question would be none."""
    fields = through("GET", "/own-limits", session).fields
    assert [value for name, value in fields if name == "x-ratelimit-limit"] == ["1000"]


def test_a_caller_cannot_choose_its_address(sidecar: SidecarProcess, session: dict[str, str]) -> None:
    """Whatever it sends, Envoy says who is connected: three requests are three of one address."""
    claims: list[dict[str, str]] = [
        {"X-Client-IP": "9.9.9.9"},
        {"x-client-ip": "8.8.8.8", "X-Forwarded-For": "7.7.7.7", "X-Real-IP": "6.6.6.6"},
        {"Connection": "x-client-ip", "X-Client-Ip": "5.5.5.5"},
        {"X-Client-IP": "4.4.4.4", "X-Envoy-External-Address": "4.4.4.4"},
    ]
    replies = [through("GET", "/address", {**session, **claim}) for claim in claims]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert replies[3].headers["x-ratelimit-rule"] == "address"


def test_head_and_post_with_a_body_are_counted_and_reach_the_application(
    sidecar: SidecarProcess, session: dict[str, str]
) -> None:
    """On one connection, which stays in step; the body goes to the application alone."""
    with Connection(ENVOY_PORT) as connection:
        head = connection.ask("HEAD", "/api/videos", session)
        assert (head.status, head.body, rate_limit(head)["x-ratelimit-remaining"]) == (200, b"", "9")
        posted = connection.ask("POST", "/api/videos", session, b"x" * 1_000_000)
        assert b"content-length: 1000000" in posted.body
        assert rate_limit(posted)["x-ratelimit-remaining"] == "8"
        for _ in range(8):
            connection.ask("HEAD", "/api/videos", session)
        refused = connection.ask("HEAD", "/api/videos", session)
        assert (refused.status, refused.body) == (429, b"")
        assert connection.ask("GET", "/x", session).status == 200


def test_an_expectation_is_envoys_affair(sidecar: SidecarProcess, session: dict[str, str]) -> None:
    """100-continue is answered by Envoy itself; the request is then counted like any other."""
    with Connection(ENVOY_PORT) as connection:
        connection.send(
            b"POST /x HTTP/1.1\r\nHost: h\r\nX-Session-Id: %b\r\n"
            b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n" % session["X-Session-Id"].encode()
        )
        assert connection.answer().status == 100
        connection.send(b"abc")
        assert rate_limit(connection.answer())["x-ratelimit-remaining"] == "999"


def test_options_star_is_answered_by_envoy_and_never_asked_about(sidecar: SidecarProcess) -> None:
    """It is for no route, so nothing behind Envoy hears of it."""
    before = requests_counted(sidecar, "all")
    reply = through("OPTIONS", "*")
    assert (reply.status, "x-app" in reply.headers) == (404, False)
    assert requests_counted(sidecar, "all") == before


def test_envoy_asks_on_a_connection_that_is_kept(sidecar: SidecarProcess, session: dict[str, str]) -> None:
    """A hundred requests open none; a new one for each check would be most of its cost."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux says which connections there are")
    through("GET", "/x", session)
    before = _connections(SIDECAR_PORT)
    assert before
    for _ in range(100):
        assert rate_limit(through("GET", "/x", session))
    assert _connections(SIDECAR_PORT) <= before


def _connections(port: int) -> set[tuple[str, str]]:
    """All connections to a local port that are open or were until a moment ago."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [tuple(line.split()[1:3]) for line in lines]
    return {(local, remote) for local, remote in ends if remote.endswith(f":{port:04X}")}


def test_a_killed_sidecar_lets_requests_pass_as_configured(
    sidecar: SidecarProcess, session: dict[str, str]
) -> None:
    """Without numbers; started again it counts on from where it was."""
    assert rate_limit(through("GET", "/api/videos", session))["x-ratelimit-remaining"] == "9"
    sidecar.kill()
    for _ in range(20):
        reply = through("GET", "/api/videos", session)
        assert (reply.status, reply.headers["x-app"], rate_limit(reply)) == (200, "yes", {})
    sidecar.start()
    assert rate_limit(through("GET", "/api/videos", session))["x-ratelimit-remaining"] == "8"


def test_evaluate_is_not_to_be_reached_through_envoy(sidecar: SidecarProcess) -> None:
    """The prefix keeps callers away from the sidecar's other paths."""
    body = json.dumps({"client_id": "c", "route": "/", "method": "GET", "identifier": {"type": "none"}})
    reply = through("POST", "/v1/evaluate", {}, body.encode())
    assert reply.body.startswith(b"POST /v1/evaluate HTTP/1.1\r\n")
    assert through("GET", "/../ready").body.startswith(b"GET /ready HTTP/1.1\r\n")
