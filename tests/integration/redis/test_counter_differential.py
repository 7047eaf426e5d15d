"""The same random calls to the model and to a real server: every answer must be equal.

Counters have no expiry here (`undying_store`), so the clock may jump as it likes, and windows are of any
length. What differs is shrunk and printed by hypothesis.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain.algorithms import MAX_INTEGER, SECOND_US, Algorithm
from sidecar.domain.decision import Check
from sidecar.domain.rule import Rule
from sidecar.domain.ruleset import MAX_CHECKS
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import Clock, MemoryStore, check, rule, undying_store

EXAMPLES, STEPS = 220, 50
WINDOWS = (1, 7, 60, 61, 3600, 86_400, 31_536_000)
RULES = 4
ORDERS = [order for number in range(1, RULES + 1) for order in permutations(range(RULES), number)]


@dataclass(frozen=True)
class Step:
    jump_us: int
    checks: tuple[Check, ...]
    charge: bool

    def __repr__(self) -> str:
        """What tells steps apart, in a line: hypothesis prints fifty of them."""
        told = (f"{c.rule.id} {c.cost}/{c.capacity}{' shadow' if c.shadow else ''}" for c in self.checks)
        return f"{self.jump_us:+} {'charge' if self.charge else 'look'} {', '.join(told)}"


@cache
def capacities(algorithm: Algorithm, window: int) -> st.SearchStrategy[int]:
    """Small ones that are soon full, and now and then the largest."""
    most = {
        Algorithm.SLIDING_WINDOW: 100_000,
        Algorithm.SLIDING_WINDOW_COUNTER: MAX_INTEGER // (window * 1000),
        Algorithm.FIXED_WINDOW: MAX_INTEGER,
        Algorithm.TOKEN_BUCKET: MAX_INTEGER // (window * SECOND_US),
    }[algorithm]
    return st.integers(1, 12) | st.integers(1, 12) | st.integers(max(1, most - 2), most)


@st.composite
def rules(draw: st.DrawFn, name: str, window: int) -> Rule:
    """The window is that one, or somewhat longer."""
    algorithm, window = draw(st.sampled_from(Algorithm)), draw(st.sampled_from([window, window * 3 // 2 + 1]))
    return draw(changed(rule(algorithm, 1, min(window, WINDOWS[-1]), name=name)))


@st.composite
def changed(draw: st.DrawFn, old: Rule) -> Rule:
    """Another limit, and for a bucket sometimes a burst of its own."""
    possible = capacities(old.algorithm, old.window_seconds or 0)
    bucket = old.algorithm is Algorithm.TOKEN_BUCKET
    return replace(old, limit=draw(possible), burst=draw(st.none() | possible) if bucket else None)


@cache
def jumps(window: int) -> st.SearchStrategy[int]:
    """Mostly none or small, now and then to the edges of a window, sometimes back."""
    us = window * SECOND_US
    near = st.sampled_from([0, 0, 1, 999, 1000, us // 12]) | st.integers(0, us // 8)
    return near | near | near | st.sampled_from([us - 1, us, us + 1, 2 * us, -1, -us]) | st.integers(-us, us)


# Strategies are made once: that costs more than to draw from them.
TENTHS, PLACES, ASKED = st.integers(0, 9), st.integers(0, RULES - 1), st.sampled_from(ORDERS)
CHARGED, SHADOW = st.sampled_from([True, True, True, False]), st.sampled_from([False, False, True])


@cache
def costs(capacity: int) -> st.SearchStrategy[int]:
    return st.integers(1, 3) | st.integers(1, capacity + 1)


def drawn_check(draw: st.DrawFn, counted: Rule) -> Check:
    return check(counted, draw(costs(counted.terms().capacity)), shadow=draw(SHADOW))


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Calls with one to four of the same four rules, whose limits change in use."""
    window = draw(st.sampled_from(WINDOWS))
    known = [draw(rules(f"r{n}", window)) for n in range(RULES)]
    steps = []
    for _ in range(STEPS):
        if draw(TENTHS) == 9:
            at = draw(PLACES)
            known[at] = draw(changed(known[at]))
        asked, jump, charge = draw(ASKED), draw(jumps(window)), draw(CHARGED)
        steps.append(Step(jump, tuple(drawn_check(draw, known[n]) for n in asked), charge))
    return steps


@dataclass
class Server:
    """A real server, asked from synchronous tests on one event loop."""

    url: str
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    clock: Clock = field(default_factory=Clock)

    def run(self, play: Callable[[RedisCounterStore], Coroutine[Any, Any, None]]) -> None:
        """With counters of its own, begun at a moment of their own."""
        self.clock.at(0)
        self.runner.run(self._run(play))

    async def _run(self, play: Callable[[RedisCounterStore], Coroutine[Any, Any, None]]) -> None:
        async with undying_store(self.url, f"d{uuid.uuid4().hex[:12]}", self.clock) as store:
            await play(store)


@pytest.fixture(scope="module")
def server(store_url: str) -> Any:
    server = Server(store_url)
    with server.runner:
        yield server


def at_once(history: list[Step]) -> Iterator[list[Step]]:
    """Requests of one moment travel together: no more than fit into one call, which keeps their order."""
    together: list[Step] = []
    for step in history:
        if together and (step.jump_us or len(together) == MAX_CHECKS // RULES):
            yield together
            together = []
        together.append(step)
    yield together


def test_a_real_server_answers_every_random_call_as_the_model_does(server: Server) -> None:
    """At least ten thousand calls on each server, all algorithms, one to four rules a call."""
    compared = 0

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(histories())
    def same(history: list[Step]) -> None:
        async def play(store: RedisCounterStore) -> None:
            nonlocal compared
            model = MemoryStore(server.clock)
            for together in at_once(history):
                server.clock.now += together[0].jump_us
                expected = [await model.hit(step.checks, charge=step.charge) for step in together]
                asked = [store.hit(step.checks, charge=step.charge) for step in together]
                assert (compared, await asyncio.gather(*asked)) == (compared, expected)
                compared += len(together)

        server.run(play)

    same()
    print(f"{compared} random calls compared")
    assert compared >= 10_000


@dataclass(frozen=True)
class Load:
    """Requests to one rule: how much later each comes than the one before, and what it costs."""

    rule: Rule
    requests: list[tuple[int, int]]


@st.composite
def loads(draw: st.DrawFn, algorithm: Algorithm) -> Load:
    window = draw(st.sampled_from(WINDOWS))
    burst = draw(st.none() | st.integers(1, 12)) if algorithm is Algorithm.TOKEN_BUCKET else None
    counted, us = rule(algorithm, draw(st.integers(1, 12)), window, burst=burst), window * SECOND_US
    passed = st.sampled_from([0, 1, us // 12, us // 2, us - 1, us]) | st.integers(0, us // 4)
    return Load(counted, draw(st.lists(st.tuples(passed, st.integers(1, 4)), min_size=40, max_size=40)))


def admitted(server: Server, load: Load) -> list[tuple[int, int]]:
    """Moment and cost of each request that passed."""
    passed = []

    async def play(store: RedisCounterStore) -> None:
        for later, cost in load.requests:
            server.clock.now += later
            if (await store.hit([check(load.rule, cost)])).admitted:
                passed.append((server.clock.now, cost))

    server.run(play)
    return passed


def test_no_window_of_a_sliding_window_admits_more_than_its_limit(server: Server) -> None:
    """Whatever the moments and costs: every interval of the window's length that begins with an admission."""

    @settings(max_examples=60, deadline=None)
    @given(loads(Algorithm.SLIDING_WINDOW))
    def holds(load: Load) -> None:
        terms, passed = load.rule.terms(), admitted(server, load)
        for begin, _ in passed:
            inside = sum(cost for moment, cost in passed if begin <= moment < begin + terms.window_us)
            assert inside <= terms.limit

    holds()


def test_a_token_bucket_never_admits_more_than_burst_and_refill(server: Server) -> None:
    """Between any two admissions, both included."""

    @settings(max_examples=60, deadline=None)
    @given(loads(Algorithm.TOKEN_BUCKET))
    def holds(load: Load) -> None:
        terms, passed = load.rule.terms(), admitted(server, load)
        for first, (begin, _) in enumerate(passed):
            for last in range(first, len(passed)):
                spent = sum(cost for _, cost in passed[first : last + 1])
                refilled = (
                    passed[last][0] - begin
                ) * terms.limit  # in parts, of which a unit has `window_us`
                assert (spent - terms.capacity) * terms.window_us <= refilled

    holds()
