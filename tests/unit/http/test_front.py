"""The front on a real port, its counters in memory: which path is answered how."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from aiohttp.web import TCPSite

from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.ports import StoreUnavailable
from sidecar.application.readiness import Readiness
from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Counted, Decision
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Mode, OnMissing, OnUnavailable, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.http.front import Front
from sidecar.infrastructure.http.server import data_runner
from sidecar.infrastructure.http.sources import Sources
from tests.decisions import NOW_US, rule
from tests.raw_http import Headers, Reply, ask


@dataclass
class Store:
    """A `CounterStore` at a standing clock; `problem` is what it raises instead of answering."""

    problem: Exception | None = None
    counters: MemoryCounters = field(default_factory=MemoryCounters)

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        if self.problem:
            raise self.problem
        return self.counters.hit(checks, NOW_US, charge=charge)

    async def ping(self) -> None: ...


@dataclass
class Watcher:
    """Sees what happened."""

    decided_requests: list[tuple[RequestMetadata, Decision]] = field(default_factory=list)
    unreadable: int = 0

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        self.decided_requests.append((request, decision))

    def unreadable_address(self) -> None:
        self.unreadable += 1


CLIENTS = [
    Client(id="c", rules=(rule("two", limit=2),)),
    Client(id="other", hosts=("other.example",), rules=(rule("one", limit=1),)),
    Client(id="shut", rules=(Rule(id="no", route="/*", mode=Mode.BLOCK),)),
    Client(id="known", rules=(rule("who", identifier_type="session_id", on_missing=OnMissing.DENY),)),
    Client(id="closed", rules=(rule("safe", on_unavailable=OnUnavailable.DENY),)),
]


class Served:
    """A front that is being served."""

    def __init__(self) -> None:
        self.store, self.watcher, self.readiness = Store(), Watcher(), Readiness(True, True)
        evaluator = RateLimitEvaluator(
            RuleSet(CLIENTS, Policy(default_client="c")), self.store, self.watcher, OnUnavailable.ALLOW
        )
        front = Front(evaluator, Sources(), self.readiness, self.watcher, 503)
        self.runner = data_runner(front.handle)
        self.port = 0

    async def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        return await asyncio.to_thread(ask, self.port, method, target, headers, body)

    async def remaining(self, target: str, headers: Headers = ()) -> str | None:
        return (await self.ask("GET", target, headers)).headers.get("x-ratelimit-remaining")


@pytest.fixture
async def front() -> AsyncIterator[Served]:
    served = Served()
    await served.runner.setup()
    await TCPSite(served.runner, "127.0.0.1", 0).start()
    served.port = served.runner.addresses[0][1]
    yield served
    await served.runner.cleanup()


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


async def test_a_failure_inside_is_a_500_that_says_nothing_of_it(
    front: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it; Envoy then does as its failure_mode_allow says."""
    front.store.problem = ValueError("secret detail")
    reply = await front.ask("GET", "/authz/x")
    assert (reply.status, reply.headers["content-type"]) == (500, "application/problem+json")
    assert b"secret" not in reply.body + repr(reply.fields).encode()
    assert "secret detail" in caplog.text
