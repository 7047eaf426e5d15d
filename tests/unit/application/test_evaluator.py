"""The main path: what is counted, what is decided without counting, and what without the store."""

import asyncio
from dataclasses import dataclass, field

import pytest

from sidecar.application.census import Census
from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.application.ports import StoreUnavailable
from sidecar.domain.decision import Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Mode, OnUnavailable, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.telemetry.metrics import Metrics
from tests.counters import MemoryStore
from tests.decisions import rule

ALLOW, DENY = OnUnavailable.ALLOW, OnUnavailable.DENY
CLIENTS = [
    Client(id="c", hosts=("c.example",), rules=(rule("one", limit=1),)),
    Client(id="empty"),
    Client(id="shut", rules=(Rule(id="no", route="/*", mode=Mode.BLOCK),)),
]


@dataclass
class Seen(MemoryStore):
    """Counters in memory, and an observer."""

    decisions: list[Decision] = field(default_factory=list)
    without_store: WithoutStore = field(default_factory=lambda: WithoutStore(LocalCounters()))

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        self.decisions.append(decision)


def request(client_id: str | None = None, host: str = "", cost: int = 1) -> RequestMetadata:
    return RequestMetadata(method="GET", target="/", client_id=client_id, host=host, cost=cost)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def evaluator(seen: Seen) -> RateLimitEvaluator:
    evaluator = RateLimitEvaluator(seen, seen, seen.without_store, Census(seen, Metrics(embedded=True)))
    evaluator.rule_set = RuleSet(CLIENTS)
    return evaluator


async def test_it_counts_and_tells_each_decision(evaluator: RateLimitEvaluator, seen: Seen) -> None:
    """A cost of 0 looks only."""
    costs = (0, 1, 0, 1)
    decisions = [await evaluator.evaluate(request("c", cost=cost)) for cost in costs]
    assert [decision.allowed for decision in decisions] == [True, True, False, False]
    assert seen.charges == [False, True, False]  # the last one from memory
    assert seen.decisions == decisions


@pytest.mark.parametrize(
    ("client_id", "reason"),
    [("shut", Reason.BLOCKED), ("empty", Reason.NO_POLICY), ("unknown", Reason.NO_POLICY)],
)
@pytest.mark.parametrize("away", [True, False])
async def test_what_needs_no_counting_is_decided_without_the_store(
    evaluator: RateLimitEvaluator, seen: Seen, away: bool, client_id: str, reason: Reason
) -> None:
    """Whether it is there or not; the observer sees it all the same."""
    seen.problem = StoreUnavailable("away") if away else None
    decision = await evaluator.evaluate(request(client_id))
    assert (decision.reason, seen.charges, seen.decisions) == (reason, [], [decision])


@pytest.mark.parametrize(("default", "allowed"), [(ALLOW, True), (DENY, False)])
async def test_a_store_that_is_away_is_decided_about(
    evaluator: RateLimitEvaluator, seen: Seen, default: OnUnavailable, allowed: bool
) -> None:
    """By what the configuration says now."""
    seen.problem, seen.without_store.default = StoreUnavailable("away"), default
    decision = await evaluator.evaluate(request("c"))
    assert (decision.allowed, decision.reason) == (allowed, Reason.STORAGE_UNAVAILABLE)


@pytest.mark.parametrize(("default", "allowed"), [(ALLOW, True), (DENY, False)])
@pytest.mark.parametrize(
    "asked",
    [request("unknown"), request(host="unknown.example"), request()],
    ids=["named", "by host", "none"],
)
async def test_until_the_store_was_read_an_unknown_client_is_decided_as_without_it(
    evaluator: RateLimitEvaluator, seen: Seen, default: OnUnavailable, allowed: bool, asked: RequestMetadata
) -> None:
    """It may be one that the API made; there are no numbers, and the observer sees the same decision."""
    evaluator.rule_set, seen.without_store.default = RuleSet(CLIENTS, complete=False), default
    decision = await evaluator.evaluate(asked)
    assert decision == Decision(allowed, Reason.STORAGE_UNAVAILABLE)
    assert seen.decisions == [decision]


async def test_until_the_store_was_read_a_known_client_is_decided_by_its_rules(
    evaluator: RateLimitEvaluator, seen: Seen
) -> None:
    """The files are there; a known client without a matching rule has none."""
    evaluator.rule_set, seen.without_store.default = RuleSet(CLIENTS, complete=False), DENY
    answers = [await evaluator.evaluate(asked) for asked in (request("c"), request("c"), request("empty"))]
    assert [answer.reason for answer in answers] == [Reason.ALLOWED, Reason.QUOTA_EXCEEDED, Reason.NO_POLICY]


async def test_a_watched_refusal_is_told_and_charges_nothing(
    evaluator: RateLimitEvaluator, seen: Seen
) -> None:
    """In `enforcement: shadow` the observer sees which rules would have refused."""
    shut = Rule(id="no", route="/*", mode=Mode.BLOCK)
    client = Client(id="c", rules=(rule("one", limit=1), shut))
    evaluator.rule_set = RuleSet([client], Policy(enforcement=Enforcement.SHADOW))
    for _ in range(2):
        assert (await evaluator.evaluate(request("c"))).allowed
    fits = [{s.check.rule.id: s.usage.fits for s in decision.states} for decision in seen.decisions]
    assert fits == [{"one": True, "no": False}, {"one": False, "no": False}]
    assert {s.check.rule.id: s.usage.used for s in seen.decisions[-1].states} == {"one": 1, "no": 0}


async def test_a_flood_on_a_used_up_key_asks_the_store_once(
    evaluator: RateLimitEvaluator, seen: Seen
) -> None:
    """The observer hears of each refusal, and each says the same."""
    decisions = [await evaluator.evaluate(request("c")) for _ in range(100)]
    assert [decision.allowed for decision in decisions] == [True] + [False] * 99
    assert seen.decisions == decisions
    assert len(seen.calls) == 2
    assert {decision.shown and decision.shown.check.rule.id for decision in decisions} == {"one"}


async def test_a_reset_and_new_rules_end_what_is_refused_from_memory(
    evaluator: RateLimitEvaluator, seen: Seen
) -> None:
    """The store is asked again, also by who was asking at that moment."""
    for _ in range(3):
        await evaluator.evaluate(request("c"))
    assert len(seen.calls) == 2
    evaluator.counters_were_reset()
    await evaluator.evaluate(request("c"))
    evaluator.rule_set = RuleSet(CLIENTS)
    asking = asyncio.ensure_future(evaluator.evaluate(request("c")))
    await asyncio.sleep(0)
    evaluator.counters_were_reset()
    await asking
    await evaluator.evaluate(request("c"))
    assert len(seen.calls) == 5


@pytest.mark.parametrize("switch", [Enforcement.SHADOW, Enforcement.OFF])
async def test_a_switch_ends_what_is_refused_from_memory(
    evaluator: RateLimitEvaluator, switch: Enforcement
) -> None:
    """At once: it is for a bad night."""
    for _ in range(3):
        refused = await evaluator.evaluate(request("c"))
    assert not refused.allowed
    evaluator.rule_set = RuleSet(CLIENTS, Policy(enforcement=switch))
    assert (await evaluator.evaluate(request("c"))).allowed


@pytest.mark.parametrize("default", [ALLOW, DENY])
async def test_what_was_decided_without_the_store_is_not_remembered(
    evaluator: RateLimitEvaluator, seen: Seen, default: OnUnavailable
) -> None:
    """It is asked again each time, and counts once it is back."""
    seen.problem, seen.without_store.default = StoreUnavailable("away"), default
    for _ in range(3):
        await evaluator.evaluate(request("c"))
    seen.problem = None
    assert (await evaluator.evaluate(request("c"))).allowed


async def test_something_unforeseen_in_the_store_is_a_decision_too(
    evaluator: RateLimitEvaluator, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """The request waits for one; what it was stands in the log."""
    seen.problem, seen.without_store.default = RuntimeError("unforeseen"), DENY
    decision = await evaluator.evaluate(request("c"))
    assert (decision.allowed, decision.reason) == (False, Reason.STORAGE_UNAVAILABLE)
    assert [record.message for record in caplog.records] == ["a request could not be counted"]
