"""What holds for every algorithm, every rule and every history: found by trying, not by thinking of cases."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain.algorithms import MAX_INTEGER, MODELS, SECOND_US, Algorithm, State, Terms, problems
from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Usage
from sidecar.domain.rule import YEAR_SECONDS, Rule

START = 1_699_999_980 * SECOND_US

every = pytest.mark.parametrize("algorithm", Algorithm)
tried = settings(deadline=None, max_examples=100)
tried_harder = settings(deadline=None, max_examples=300)


@dataclass
class History:
    """One counter, and what was asked of it: pairs of microseconds passed and cost."""

    rule: Rule
    steps: list[tuple[int, int]]
    counters: MemoryCounters = field(default_factory=MemoryCounters)
    now: int = START

    @property
    def capacity(self) -> int:
        return self.rule.terms().capacity

    def ask(self, cost: int, *, at: int, charge: bool = False) -> Usage:
        terms = self.rule.terms()
        check = Check("c", self.rule, "=", terms.limit, terms.capacity, cost)
        return self.counters.hit([check], at, charge=charge).usages[0]

    def remaining(self, at: int) -> int:
        return max(0, self.capacity - self.ask(1, at=at).used)

    def play(self) -> Iterator[tuple[int, int, Usage]]:
        """Ask for everything, in order: moment, cost, answer."""
        for passed, cost in self.steps:
            self.now += passed
            yield self.now, cost, self.ask(cost, at=self.now, charge=True)

    def played(self) -> "History":
        for _ in self.play():
            pass
        return self


@st.composite
def histories(draw: st.DrawFn, algorithm: Algorithm, *, jumps_back: bool = False) -> History:
    """Rules small enough to be filled, and steps around the edges of their windows."""
    limit, window = draw(st.integers(1, 12)), draw(st.integers(1, 7) | st.sampled_from([10, 60, 3600]))
    burst = draw(st.none() | st.integers(1, 12)) if algorithm is Algorithm.TOKEN_BUCKET else None
    window_us = window * SECOND_US
    edges = [0, 1, 999, 1000, window_us // limit, window_us - 1, window_us, window_us + 1, 2 * window_us]
    passed = st.sampled_from(edges) | st.integers(0, window_us)
    if jumps_back:
        passed |= st.integers(-window_us, 0)
    steps = st.lists(st.tuples(passed, st.integers(1, 3) | st.integers(1, 14)), max_size=12)
    rule = Rule(
        id="r",
        route="/*",
        identifier_type="none",
        algorithm=algorithm,
        limit=limit,
        window_seconds=window,
        burst=burst,
    )
    return History(rule, draw(steps))


@every
@given(data=st.data())
@tried
def test_waiting_exactly_the_retry_lets_the_same_cost_pass(algorithm: Algorithm, data: st.DataObject) -> None:
    """One microsecond less does not; a clock that has jumped back makes no difference."""
    history = data.draw(histories(algorithm, jumps_back=True)).played()
    cost = data.draw(st.integers(1, history.capacity))
    usage = history.ask(cost, at=history.now)
    assert usage.retry_us is not None
    assert usage.fits == (usage.retry_us == 0)
    assert history.ask(cost, at=history.now + usage.retry_us).fits
    if not usage.fits:
        assert not history.ask(cost, at=history.now + usage.retry_us - 1).fits


@every
@given(data=st.data())
@tried
def test_remaining_grows_at_the_reset_and_not_before(algorithm: Algorithm, data: st.DataObject) -> None:
    """Reset is the first moment with more remaining if nothing is charged, and 0 when nothing is used."""
    history = data.draw(histories(algorithm, jumps_back=True)).played()
    usage, remaining = history.ask(1, at=history.now), history.remaining(history.now)
    assert (usage.reset_us == 0) == (usage.used == 0)
    if usage.used:
        assert history.remaining(history.now + usage.reset_us - 1) == remaining
        assert history.remaining(history.now + usage.reset_us) > remaining


@every
@given(data=st.data())
@tried
def test_sliding_window_counter_answers_on_its_millisecond_grid(
    algorithm: Algorithm, data: st.DataObject
) -> None:
    """Its moments are whole milliseconds, as are those of a fixed window, whose intervals are seconds."""
    history = data.draw(histories(algorithm)).played()
    usage = history.ask(history.capacity, at=history.now)
    if algorithm in (Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.FIXED_WINDOW) and usage.used:
        assert (history.now + usage.reset_us) % 1000 == 0
        assert (history.now + (usage.retry_us or 0)) % 1000 == 0 or usage.fits


@every
@given(data=st.data())
@tried
def test_a_cost_above_capacity_never_fits(algorithm: Algorithm, data: st.DataObject) -> None:
    """Whatever is in use, there is no moment to wait for, and asking leaves the counter as it was."""
    history = data.draw(histories(algorithm)).played()
    before = history.ask(1, at=history.now)
    refused = history.ask(history.capacity + 1, at=history.now, charge=True)
    assert (refused.fits, refused.retry_us, refused.used) == (False, None, before.used)
    assert history.ask(1, at=history.now) == before


@every
@given(data=st.data())
@tried
def test_what_is_used_stays_within_capacity(algorithm: Algorithm, data: st.DataObject) -> None:
    """Never negative, never more than the rule holds, and exactly the cost more after an admission."""
    history = data.draw(histories(algorithm))
    before = 0
    for moment, cost, usage in history.play():
        assert 0 <= usage.used <= history.capacity
        if usage.fits:
            assert cost <= usage.used <= before + cost
        before = history.ask(1, at=moment).used
        assert before == usage.used


@every
@given(data=st.data())
@tried
def test_looking_changes_nothing(algorithm: Algorithm, data: st.DataObject) -> None:
    """A history that was looked at between its steps goes on like one that was not."""
    watched = data.draw(histories(algorithm, jumps_back=True))
    unwatched = History(watched.rule, watched.steps)
    later = data.draw(st.integers(0, 10**10))
    answers = []
    for moment, _, usage in watched.play():
        watched.ask(1, at=moment)
        watched.ask(2, at=moment + later)
        answers.append(usage)
    assert answers == [usage for _, _, usage in unwatched.play()]


def admitted(history: History) -> list[tuple[int, int]]:
    return [(moment, cost) for moment, cost, usage in history.play() if usage.fits]


@given(histories(Algorithm.SLIDING_WINDOW))
@tried_harder
def test_sliding_window_admits_no_more_than_its_limit_in_any_window(history: History) -> None:
    """In no half-open interval of the window's length, wherever it begins."""
    entries, terms = admitted(history), history.rule.terms()
    for begin, _ in entries:
        inside = sum(cost for moment, cost in entries if begin <= moment < begin + terms.window_us)
        assert inside <= terms.limit


@given(histories(Algorithm.FIXED_WINDOW))
@tried
def test_fixed_window_admits_no_more_than_its_limit_in_an_interval(history: History) -> None:
    """Intervals are aligned to the epoch."""
    entries, terms = admitted(history), history.rule.terms()
    for index in {moment // terms.window_us for moment, _ in entries}:
        assert sum(cost for moment, cost in entries if moment // terms.window_us == index) <= terms.limit


@given(histories(Algorithm.SLIDING_WINDOW_COUNTER))
@tried
def test_sliding_window_counter_admits_less_than_twice_its_limit_in_any_window(history: History) -> None:
    """Approximate, but bounded: no window touches more than two intervals, and each holds one limit."""
    entries, terms = admitted(history), history.rule.terms()
    for begin, _ in entries:
        inside = sum(cost for moment, cost in entries if begin <= moment < begin + terms.window_us)
        assert inside < 2 * terms.limit or terms.limit == inside


@given(histories(Algorithm.TOKEN_BUCKET))
@tried_harder
def test_token_bucket_admits_no_more_than_it_holds_and_regains(history: History) -> None:
    """Between any two admissions: the burst, and the rate times what has passed."""
    entries, terms = admitted(history), history.rule.terms()
    spent = [0, *accumulate(cost for _, cost in entries)]
    for first, (begin, _) in enumerate(entries):
        for last in range(first, len(entries)):
            passed = entries[last][0] - begin
            most = terms.capacity * terms.window_us + passed * terms.limit
            assert (spent[last + 1] - spent[first]) * terms.window_us <= most


def products(algorithm: Algorithm, terms: Terms) -> Iterator[int]:
    """The largest intermediate numbers of each algorithm."""
    match algorithm:
        case Algorithm.SLIDING_WINDOW:
            yield terms.limit
        case Algorithm.SLIDING_WINDOW_COUNTER:
            yield terms.limit * (terms.window_us // 1000)
        case Algorithm.FIXED_WINDOW:
            yield terms.limit
        case Algorithm.TOKEN_BUCKET:
            yield terms.capacity * terms.refill[1]
            yield terms.refill[0]


@st.composite
def large_terms(draw: st.DrawFn) -> Terms:
    """Limits and windows around those at which products leave the doubles."""
    window = draw(st.sampled_from([1, 7, 60, 3600, 86400, YEAR_SECONDS]) | st.integers(1, YEAR_SECONDS))
    edge = MAX_INTEGER // draw(st.sampled_from([1, window * 1000, window * SECOND_US, window, 1000]))
    limit = draw(st.integers(1, 100) | st.just(min(MAX_INTEGER, max(1, edge + draw(st.integers(-3, 3))))))
    terms = Terms(limit, limit, window * SECOND_US)
    largest = MAX_INTEGER // terms.refill[1]
    capacity = draw(st.just(limit) | st.integers(1, MAX_INTEGER) | st.sampled_from([1, largest, largest + 1]))
    return Terms(limit, capacity, terms.window_us)


@every
@given(data=st.data())
@tried
def test_accepted_terms_keep_every_product_and_state_in_the_doubles(
    algorithm: Algorithm, data: st.DataObject
) -> None:
    """Filled to the brim, and looked at again half a window later, nothing passes 2^53."""
    terms = data.draw(large_terms())
    if algorithm is not Algorithm.TOKEN_BUCKET:
        terms = Terms(terms.limit, terms.limit, terms.window_us)
    if any(problems(algorithm, terms)):
        return
    assert max(products(algorithm, terms)) <= MAX_INTEGER
    model = MODELS[algorithm]
    state: State | None = model.at(None, START, terms).charged(terms.capacity)
    assert state is not None
    assert max(state) <= MAX_INTEGER
    full = model.at(state, START, terms)
    assert full.used == terms.capacity
    assert START < full.when_at_most(terms.capacity - 1) <= full.when_at_most(0) <= START + MAX_INTEGER
    assert model.at(state, full.when_at_most(0), terms).used == 0
