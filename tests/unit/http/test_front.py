"""The front on a real port, its counters in memory: which path is answered how."""

import pytest

from sidecar.application.ports import StoreUnavailable
from tests.served_front import Served


@pytest.mark.parametrize(
    "target", ["/authz", "/authz/", "/authz?x", "/authz/a/b?c", "/authz*", "/authz//x", "http://h/authz/x"]
)
async def test_the_prefix_is_envoys_dialect_whatever_follows_it(front: Served, target: str) -> None:
    """Envoy puts the client's own target behind it, whatever that is."""
    assert await front.remaining(target) == "1"


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("/authz", ""),
        ("/authz/a?b#c", "/a?b#c"),
        ("/authz*", "*"),
        ("/authz//x", "//x"),
        ("/authz/a%2Fb/..", "/a%2Fb/.."),
        ("http://h:1/authz/a?b", "/a?b"),
        ("/clients/c/authz/a", "/a"),
        ("/authz/x?next=http://evil.example/authz/free", "/x?next=http://evil.example/authz/free"),
        ("/authz/http://evil.example/free", "/http://evil.example/free"),
        ("/authz/clients/other/authz/x", "/clients/other/authz/x"),
        ("/authz/authz/x", "/authz/x"),
    ],
)
async def test_rules_see_the_target_behind_the_prefix_and_nothing_else(
    front: Served, target: str, seen: str
) -> None:
    """Not decoded, not normalized: what is taken from it or added to it would be an evasion."""
    await front.ask("GET", target)
    assert [request.target for request, _ in front.watcher.decided_requests] == [seen]


@pytest.mark.parametrize("target", ["/authz/" + "a" * 120_000, "/authz?" + "a" * 120_000])
async def test_a_target_as_long_as_proxies_accept_is_counted(front: Served, target: str) -> None:
    """The framework's own limits would be a 400 that ends the client's request."""
    assert await front.remaining(target) == "1"


async def test_a_pinned_client_is_the_only_one_whose_rules_apply(front: Served) -> None:
    """Not that of the host, and none where the pinned one is unknown."""
    host = {"Host": "other.example"}
    assert (await front.ask("GET", "/authz/x", host)).headers["x-ratelimit-limit"] == "1"
    assert (await front.ask("GET", "/clients/c/authz/x", host)).headers["x-ratelimit-limit"] == "2"
    unknown = await front.ask("GET", "/clients/nobody/authz/x", host)
    assert (unknown.status, unknown.body, "x-ratelimit-limit" in unknown.headers) == (200, b"", False)
    assert front.watcher.decided_requests[-1][1].reason == "no_policy"


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/metrics",
        "/v1/clients",
        "/clients/c",
        "/clients/c/",
        "/clients/c/health",
        "/clients/c/v1/evaluate",
        "/clients//authz/x",
        f"/clients/{'x' * 65}/authz/x",
        "/clients/a%20b/authz/x",
        "/Authz/x",
        "//authz/x",
        "/v1/evaluate/",
        "*",
        "/x/authz/x",
    ],
)
async def test_any_other_path_is_a_404_that_helps(front: Served, target: str) -> None:
    """It says what Envoy's configuration lacks, and decides nothing."""
    reply = await front.ask("OPTIONS", target)
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    assert "path_prefix: /authz" in reply.json["detail"]
    assert front.watcher.decided_requests == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("abc", True),
        ("A-Z.a_z-0", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a b", False),
        ("a,b", False),
        ("a/b", False),
        ("<script>", False),
        ("caf\xe9", False),
    ],
)
async def test_a_request_id_is_taken_over_if_it_is_plain_else_made(
    front: Served, given: str, taken: bool
) -> None:
    """The one thing that an answer repeats, and the decision's log line with it."""
    reply = await front.ask("GET", "/authz/x", {"X-Request-ID": given})
    answered = reply.headers["x-request-id"]
    assert (answered == given) is taken
    assert front.watcher.decided_requests[0][0].request_id == answered
    assert len(answered) == (len(given) if taken else 32)


async def test_an_answer_repeats_nothing_that_the_caller_sent(front: Served) -> None:
    """Neither allowed nor refused, neither in headers nor in the body."""
    sent = {"Host": "canary.example", "X-Session-Id": "canary", "Cookie": "session_id=canary"}
    for _ in range(3):
        reply = await front.ask("GET", "/authz/canary?canary", {**sent, "X-Request-ID": "a canary"})
        assert b"canary" not in reply.body + repr(reply.fields).encode()
    assert reply.status == 429


async def test_an_address_that_cannot_be_read_is_told(front: Served) -> None:
    """A proxy that does not send what is configured shows, instead of counting everyone apart."""
    await front.ask("GET", "/authz/x", {"X-Client-IP": "192.0.2.1"})
    assert front.watcher.unreadable == 0
    await front.ask("GET", "/authz/x", {"X-Client-IP": "nonsense"})
    await front.ask("GET", "/authz/x")
    assert front.watcher.unreadable == 2


@pytest.mark.parametrize(
    ("serving", "reachable", "status", "word"),
    [
        (True, True, 200, b"ready"),
        (True, False, 200, b"degraded"),
        (False, True, 503, b"unavailable"),
        (False, False, 503, b"unavailable"),
    ],
)
async def test_ready_says_whether_requests_should_come_here(
    front: Served, serving: bool, reachable: bool, status: int, word: bytes
) -> None:
    """A store that is away is no reason to take every replica out."""
    front.readiness.serving, front.readiness.store_reachable = serving, reachable
    reply = await front.ask("GET", "/ready")
    assert (reply.status, reply.body) == (status, word)
    health = await front.ask("GET", "/health?x")
    assert (health.status, health.body) == (200, b'{"status": "ok"}')


@pytest.mark.parametrize(
    ("client", "problem", "status", "limited"),
    [
        ("shut", None, 403, False),
        ("known", None, 403, False),
        ("closed", StoreUnavailable("away"), 503, False),
        ("c", StoreUnavailable("away"), 200, False),
        ("c", None, 200, True),
    ],
)
async def test_each_decision_has_its_status(
    front: Served, client: str, problem: Exception | None, status: int, limited: bool
) -> None:
    """Numbers are there only where something was counted."""
    front.store.problem = problem
    reply = await front.ask("GET", f"/clients/{client}/authz/x")
    assert (reply.status, "x-ratelimit-limit" in reply.headers) == (status, limited)


@pytest.mark.parametrize(("target", "status"), [("/authz/x", 200), ("/clients/closed/authz/x", 503)])
async def test_a_failure_inside_is_decided_as_without_the_store(
    front: Served, caplog: pytest.LogCaptureFixture, target: str, status: int
) -> None:
    """The log has it, and no answer; whoever asks waits for a decision, not for our mistakes."""
    front.store.problem = ValueError("secret detail")
    reply = await front.ask("GET", target)
    assert (reply.status, reply.headers["x-ratelimit-degraded"]) == (status, "storage_unavailable")
    assert b"secret" not in reply.body + repr(reply.fields).encode()
    assert "secret detail" in caplog.text
