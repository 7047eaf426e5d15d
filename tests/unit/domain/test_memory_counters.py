"""Counters in bounded memory: what is forgotten; a coarse window admits no more than an exact one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain.algorithms import SECOND_US, Algorithm
from sidecar.domain.counters import MOMENTS, MemoryCounters, Room
from sidecar.domain.decision import Check
from tests.decisions import NOW_US, check, rule

tried = settings(deadline=None, max_examples=300)
#: More than a counter may have: all moments of a window, one that just went and one that just came.
MOST_NUMBERS = 2 * (MOMENTS + 2)


def numbered(number: int, **fields: object) -> Check:
    return check(rule(limit=3), identifier=f"={number}", **fields)


def fits(counters: MemoryCounters, one: Check, now_us: int = NOW_US, *, charge: bool = True) -> bool:
    return counters.hit([one], now_us, charge=charge).admitted


def test_the_counter_that_was_charged_longest_ago_is_forgotten_first() -> None:
    counters = MemoryCounters(room=Room(counters=3, numbers=100))
    for number in (1, 2, 3, 1, 4):
        fits(counters, numbered(number))
    assert counters.taken.counters == 3
    used = [counters.hit([numbered(n)], NOW_US, charge=False).usages[0].used for n in (1, 2, 3, 4)]
    assert used == [2, 0, 1, 1]


def test_looks_and_refusals_take_no_room() -> None:
    counters = MemoryCounters(room=Room(counters=10, numbers=100))
    for number in range(5):
        fits(counters, numbered(number), charge=False)
        assert not fits(counters, numbered(number, cost=4))
    assert counters.taken == Room(0, 0)


def test_a_request_with_more_rules_than_there_is_room_is_decided() -> None:
    """The last of its counters are kept."""
    counters = MemoryCounters(room=Room(counters=2, numbers=100))
    answer = counters.hit([numbered(n) for n in range(5)], NOW_US, charge=True)
    assert (answer.admitted, len(answer.usages), counters.taken.counters) == (True, 5, 2)


def test_entries_of_sliding_windows_are_bounded_all_together() -> None:
    """Each may have many; all together have no more than there is room for."""
    counters = MemoryCounters(room=Room(counters=1000, numbers=500))
    of = rule(limit=1000, window_seconds=60)
    for moment in range(60):
        for number in range(10):
            fits(counters, check(of, identifier=f"={number}"), NOW_US + moment * SECOND_US)
            assert counters.taken.numbers <= 500
    assert counters.taken.numbers > 250


def test_what_is_taken_is_what_is_there() -> None:
    """Also after entries went, counters were charged again and were forgotten."""
    counters = MemoryCounters(room=Room(counters=20, numbers=120))
    for step in range(500):
        of = rule(algorithm=list(Algorithm)[step % 4], limit=5, window_seconds=2)
        fits(counters, check(of, identifier=f"={step * 7 % 30}"), NOW_US + step * 100_000)
    states = counters._states.values()
    assert counters.taken == Room(len(states), sum(map(len, states)))


@pytest.mark.parametrize("window", [1, 7, 60, 3600, 31_536_000])
def test_a_coarse_window_has_a_bounded_number_of_entries(window: int) -> None:
    """However many requests there were, at however many moments."""
    counters = MemoryCounters(coarse=True)
    of = check(rule(limit=100_000, window_seconds=window))
    step = window * SECOND_US // 1000
    for number in range(3000):
        assert fits(counters, of, NOW_US + number * step)
    assert counters.taken.counters == 1
    assert counters.taken.numbers <= MOST_NUMBERS


@given(
    limit=st.integers(1, 8),
    window=st.sampled_from([1, 2, 7, 60, 3600]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 1.2) | st.sampled_from([0, 1 / MOMENTS, 1.0, 1 + 1 / MOMENTS]), st.integers(1, 4)
        ),
        max_size=40,
    ),
)
@tried
def test_what_a_coarse_window_admits_an_exact_one_would_have(
    limit: int, window: int, steps: list[tuple[float, int]]
) -> None:
    """Everything that the coarse one admits is put to an exact one that knows nothing else: it fits."""
    coarse, exact = MemoryCounters(coarse=True), MemoryCounters()
    of, now = rule(limit=limit, window_seconds=window), NOW_US
    for passed, cost in steps:
        now += int(passed * window * SECOND_US)
        asked = check(of, cost=cost)
        if fits(coarse, asked, now):
            assert fits(exact, asked, now)


@given(
    limit=st.integers(1, 8),
    window=st.sampled_from([1, 7, 60]),
    steps=st.lists(st.floats(0, 1.2), min_size=1, max_size=30),
)
@tried
def test_waiting_as_long_as_a_coarse_window_says_is_enough(
    limit: int, window: int, steps: list[float]
) -> None:
    """And it is never longer than the window and a step of it."""
    counters = MemoryCounters(coarse=True)
    of, now = check(rule(limit=limit, window_seconds=window)), NOW_US
    for passed in steps:
        now += int(passed * window * SECOND_US)
        answer = counters.hit([of], now, charge=True)
        if not answer.admitted:
            retry = answer.usages[0].retry_us
            assert retry is not None
            assert 0 < retry <= window * SECOND_US * (MOMENTS + 2) // MOMENTS
            assert fits(counters, of, now + retry, charge=False)


@pytest.mark.parametrize("algorithm", [a for a in Algorithm if a is not Algorithm.SLIDING_WINDOW])
def test_other_algorithms_are_exact_when_coarse(algorithm: Algorithm) -> None:
    """Their state is small as it is."""
    coarse, exact = MemoryCounters(coarse=True), MemoryCounters()
    of = check(rule(algorithm=algorithm, limit=3, window_seconds=2))
    for step in range(50):
        now = NOW_US + step * 333_333
        assert coarse.hit([of], now, charge=True) == exact.hit([of], now, charge=True)


def test_a_clock_that_runs_backwards_frees_nothing() -> None:
    counters = MemoryCounters(coarse=True)
    of = check(rule(limit=2))
    assert [fits(counters, of, NOW_US + step) for step in (0, -SECOND_US, -2 * SECOND_US)] == [
        True,
        True,
        False,
    ]
