"""The census: who is noted, when a rule is crowded, what it says, and that its memory is bounded."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

import pytest

from sidecar.application import census as module
from sidecar.application.census import Census
from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.explain import Explainer
from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.application.ports import StoreUnavailable
from sidecar.domain.decision import Check, Counted, Decision, Usage
from sidecar.domain.identity import EVERYONE
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Mode, OnUnavailable, Rule
from sidecar.domain.ruleset import RuleSet
from tests.counters import MemoryStore

CAP = 3
MANY, FEW = "a rule counts very many identifiers", "a rule no longer counts very many identifiers"


@dataclass
class Counting(MemoryStore):
    """Counts exactly, and remembers what it was told; `number` is what it says instead."""

    number: int | None = None
    told: list[tuple[str, str, int, int]] = field(default_factory=list)
    news: list[tuple[str, str, int]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    alive: dict[tuple[str, str, int], set[str]] = field(default_factory=dict)

    async def live_identifiers(self, client_id: str, rule: Rule, resets: int, seen: Collection[str]) -> int:
        if self.problem:
            raise self.problem
        self.told.append((client_id, rule.id, resets, len(seen)))
        alive = self.alive.setdefault((client_id, rule.id, resets), set())
        alive.update(seen)
        return len(alive) if self.number is None else self.number

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        self.decisions.append(decision)


@dataclass
class News:
    told: list[tuple[str, str, int]] = field(default_factory=list)

    def live_identifiers(self, client_id: str, rule_id: str, number: int) -> None:
        self.told.append((client_id, rule_id, number))


def rule(rule_id: str = "r", route: str = "/*", **more: object) -> Rule:
    fields = {"identifier_type": "session_id", "limit": 2, "window_seconds": 60, "max_identifiers": CAP}
    return Rule(**{"id": rule_id, "route": route, **fields, **more})  # type: ignore[arg-type]


class Scene:
    """A rule set, asked with sessions and addresses."""

    def __init__(self, *rules: Rule, local: bool = False) -> None:
        self.store, self.news = Counting(), News()
        self.census = Census(self.store, self.news)
        without = WithoutStore(LocalCounters())
        without.default = OnUnavailable.LOCAL if local else OnUnavailable.ALLOW
        self.evaluator = RateLimitEvaluator(self.store, self.store, without, self.census)
        self.explainer = Explainer(self.store, without, self.census)
        self.use(*rules)

    def use(self, *rules: Rule, resets: int = 0) -> None:
        rule_set = RuleSet([Client(id="c", rules=rules)], resets={("c", "*"): resets} if resets else {})
        self.evaluator.rule_set = self.census.rule_set = self.explainer.rule_set = rule_set

    async def ask(self, session: str | None, address: int = 1, target: str = "/", cost: int = 1) -> bool:
        return (await self.evaluator.evaluate(request(session, address, target, cost))).allowed

    async def crowd(self, sessions: int = CAP + 1) -> None:
        for number in range(sessions):
            await self.ask(f"old{number}", address=200)


def request(session: str | None, address: int = 1, target: str = "/", cost: int = 1) -> RequestMetadata:
    return RequestMetadata(
        method="GET",
        target=target,
        client_id="c",
        session_id=session,
        address=IPv4Address(f"192.0.2.{address}"),
        has_address=True,
        cost=cost,
    )


async def test_nothing_is_touched_while_nothing_is_crowded() -> None:
    """The list of checks itself goes on to the store."""
    scene = Scene(rule())
    checks = scene.census.rule_set.checks_for(request("s"))
    assert isinstance(checks, list)
    assert scene.census.checks(checks, request("s")) is checks


async def test_above_its_cap_a_rule_counts_newcomers_by_address() -> None:
    """At once, by what this process has seen; each address has the rule's limit for all of its newcomers."""
    scene = Scene(rule())
    await scene.crowd()
    assert [await scene.ask(f"new{number}", address=1) for number in range(5)] == [True, True, *[False] * 3]
    assert [await scene.ask(f"newer{number}", address=2) for number in range(3)] == [True, True, False]
    assert len(scene.store.alive) == 0


async def test_who_was_there_before_keeps_a_counter_of_its_own() -> None:
    """A limit of two, of which one was used before the crowd came."""
    scene = Scene(rule())
    await scene.crowd()
    assert [await scene.ask("new", address=200) for _ in range(3)] == [True, True, False]
    assert [await scene.ask("old0", address=200) for _ in range(2)] == [True, False]


async def test_identifiers_that_the_rule_names_are_not_lumped_together() -> None:
    """There are only so many of them."""
    scene = Scene(rule(overrides={"vip": 5, "free": "unlimited"}))
    await scene.crowd()
    assert not all([await scene.ask(f"new{number}") for number in range(3)])
    assert [await scene.ask("vip") for _ in range(6)] == [True] * 5 + [False]
    assert all([await scene.ask("free") for _ in range(9)])


async def test_a_missing_identifier_is_counted_as_ever() -> None:
    """By its address too, if `on_missing` says so: it is the same counter."""
    scene = Scene(rule(on_missing="shared"))
    await scene.crowd()
    assert [await scene.ask(None, address=number) for number in range(1, 4)] == [True, True, False]


async def test_a_rule_is_crowded_for_itself_alone() -> None:
    """Other rules, with or without a cap, go on."""
    scene = Scene(rule("capped", "/a"), rule("other", "/b"), rule("free", "/c", max_identifiers=None))
    for number in range(10):
        await scene.ask(f"s{number}", target="/a")
    assert all([await scene.ask(f"s{number}", target="/c") for number in range(50)])
    assert all([await scene.ask(f"s{number}", target="/b") for number in range(CAP)])


async def test_the_store_says_when_it_is_over() -> None:
    """Of all processes together; the next newcomer has a counter of its own again."""
    scene = Scene(rule())
    scene.store.number = CAP + 1
    await scene.ask("one")
    await scene.census.take()
    assert [await scene.ask(f"new{number}") for number in range(3)] == [True, True, False]
    scene.store.number = CAP
    await scene.census.take()
    assert [await scene.ask(f"newer{number}") for number in range(2)] == [True] * 2


async def test_a_cap_that_is_lifted_ends_it() -> None:
    """At the next look."""
    scene = Scene(rule())
    await scene.crowd()
    scene.use(rule(max_identifiers=None))
    await scene.ask("any")
    await scene.census.take()
    assert all([await scene.ask(f"new{number}") for number in range(10)])


async def test_counters_that_are_begun_anew_are_counted_anew() -> None:
    scene = Scene(rule())
    await scene.crowd()
    await scene.census.take()
    scene.use(rule(), resets=1)
    await scene.census.take()
    assert scene.store.told[-1] == ("c", "r", 1, 0)
    assert all([await scene.ask(f"new{number}") for number in range(CAP)])


async def test_who_is_refused_by_another_rule_is_not_noted() -> None:
    """Nothing was begun for it: an address that rotates sessions beyond its own limit crowds nobody out."""
    scene = Scene(rule(), rule("ip", identifier_type="ip", limit=1, max_identifiers=None))
    for number in range(50):
        await scene.ask(f"s{number}", address=1)
    await scene.census.take()
    assert scene.news.told == [("c", "r", 1), ("c", "ip", 1)]
    assert all([await scene.ask("new", address=number) for number in (2, 3)])


async def test_newcomers_that_a_crowded_rule_refuses_keep_it_crowded() -> None:
    """Else it would be over every two windows, under the same flood."""
    scene = Scene(rule())
    await scene.crowd()
    await scene.census.take()
    for number in range(20):
        await scene.ask(f"new{number}")
    await scene.census.take()
    assert scene.store.told[-1][3] == 20


async def test_a_look_is_not_noted() -> None:
    """A cost of 0 begins no counter."""
    scene = Scene(rule())
    for number in range(50):
        assert await scene.ask(f"s{number}", cost=0)
    await scene.census.take()
    assert scene.store.told == []


async def test_a_rule_for_everyone_is_not_noted() -> None:
    scene = Scene(rule(identifier_type="none", max_identifiers=None))
    await scene.ask("s")
    await scene.census.take()
    assert scene.store.told == []


async def test_a_rule_that_only_watches_is_counted_alike() -> None:
    """Its counters fill the store as well."""
    scene = Scene(rule(mode=Mode.SHADOW))
    await scene.crowd()
    for number in range(5):
        assert await scene.ask(f"new{number}")
    fits = [decision.states[0].usage.fits for decision in scene.store.decisions[-5:]]
    assert fits == [True, True, False, False, False]


async def test_without_the_store_newcomers_share_too() -> None:
    """`local` counts by the same checks."""
    scene = Scene(rule(), local=True)
    await scene.crowd()
    scene.store.problem = StoreUnavailable("no answer")
    assert [await scene.ask(f"new{number}") for number in range(3)] == [True, True, False]


async def test_explain_says_by_whom_a_newcomer_is_counted() -> None:
    """And what that counter holds; who was there before is shown with its own."""
    scene = Scene(rule())
    await scene.crowd()
    await scene.ask("new0")
    newcomer = await scene.explainer.explain(request("new1"))
    assert newcomer.states["r"].identifier == "~ip=192.0.2.1"
    assert newcomer.states["r"].key.endswith(":~ip=192.0.2.1")
    assert newcomer.states["r"].state.usage.used == 1
    old = await scene.explainer.explain(request("old1"))
    assert not old.states["r"].identifier.startswith("~")
    assert old.states["r"].state.usage.used == 1


async def test_what_was_noted_waits_for_a_store_that_is_away() -> None:
    scene = Scene(rule(max_identifiers=None))
    for number in range(5):
        await scene.ask(f"s{number}")
    scene.store.problem = StoreUnavailable("no answer")
    with pytest.raises(StoreUnavailable):
        await scene.census.take()
    scene.store.problem = None
    await scene.census.take()
    assert scene.news.told == [("c", "r", 5)]


async def test_many_are_one_alarm_until_they_are_few_again(caplog: pytest.LogCaptureFixture) -> None:
    """A number that goes up and down around the threshold is no news."""
    scene = Scene(rule(max_identifiers=None))
    scene.census.alarm = 100
    await scene.ask("s")
    with caplog.at_level(logging.INFO, "sidecar.identifiers"):
        for number in (100, 101, 99, 102, 95, 300, 90, 101):
            scene.store.number = number
            await scene.census.take()
    assert caplog.messages == [MANY, FEW, MANY]
    first = vars(caplog.records[0])
    assert (first["client"], first["rule"], first["identifiers"]) == ("c", "r", 101)


async def test_a_cap_is_an_alarm_below_that_of_all(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(rule())
    scene.store.number = CAP + 1
    await scene.ask("s")
    await scene.census.take()
    assert caplog.messages == [MANY]


async def test_a_rule_without_identifiers_is_forgotten() -> None:
    """Its number is said once more, as 0; then nobody is asked about it."""
    scene = Scene(rule())
    await scene.ask("s")
    await scene.census.take()
    scene.store.number = 0
    for _ in range(3):
        await scene.census.take()
    assert scene.news.told == [("c", "r", 1), ("c", "r", 0)]


def noted(census: Census, of: Rule, identifiers: int) -> None:
    """So many were counted."""
    terms = of.terms()
    check = Check("c", of, "", terms.limit, terms.capacity, 1)
    counted = Counted(True, 0, [Usage(True, 1, 0, 1)])
    for number in range(identifiers):
        census.counted([replace(check, identifier=f"={number}")], counted)


async def test_memory_is_bounded_for_each_rule_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many callers come within an interval, and however many rules there are."""
    monkeypatch.setattr(module, "MAX_SEEN", 50)
    monkeypatch.setattr(module, "MAX_SEEN_OF_ALL", 120)
    scene = Scene()
    for name in ("a", "b", "c", "d"):
        noted(scene.census, rule(name, max_identifiers=None), 500)
    await scene.census.take()
    assert [told[3] for told in scene.store.told] == [50, 50, 20, 0]
    noted(scene.census, rule("a", max_identifiers=None), 500)
    await scene.census.take()
    assert ("c", "a", 0, 50) in scene.store.told[4:]


async def test_many_rules_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interval asks the store more than so often, and none is left out."""
    monkeypatch.setattr(module, "MAX_RULES", 2)
    scene = Scene()
    for name in "abcde":
        noted(scene.census, rule(name), 1)
    for _ in range(3):
        await scene.census.take()
    assert [told[1] for told in scene.store.told] == [*"abcdea"]


async def test_a_check_that_stands_for_a_refusal_is_left_alone() -> None:
    """A shadow `block` override of a crowded rule: nobody's counter."""
    scene = Scene(rule(mode=Mode.SHADOW, overrides={"bad": "block"}))
    await scene.crowd()
    checks = scene.census.rule_set.checks_for(request("bad"))
    assert isinstance(checks, list)
    assert [(each.identifier, each.instead) for each in scene.census.checks(checks, request("bad"))] == [
        (EVERYONE, None)
    ]
