"""Each algorithm as a table: when, what it costs, and what the answer says. No clock, no sleeping.

A row is `(now, cost, remaining, retry, reset)`, times in seconds since `START`, which every window used here
divides. `remaining`, `retry` and `reset` are those after the step; `retry` is 0 exactly when it was admitted
and `None` when it never can be. A cost of 0 looks what one unit would get, and charges nothing.
"""

from dataclasses import replace

import pytest

from sidecar.domain.algorithms import Algorithm
from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Decision, decide
from sidecar.domain.rule import Rule

START = 1_699_999_980
#: One microsecond.
US = 0.000001

Row = tuple[float, int, int, float | None, float]


def rule(algorithm: Algorithm, limit: int, window: int = 60, burst: int | None = None) -> Rule:
    return Rule(
        id="r",
        route="/*",
        identifier_type="none",
        algorithm=algorithm,
        limit=limit,
        window_seconds=window,
        burst=burst,
    )


def hit(counters: MemoryCounters, counted: Rule, at: float, cost: int = 1) -> Decision:
    terms = counted.terms()
    checks = [Check("c", counted, "=", terms.limit, terms.capacity, cost or 1)]
    return decide(checks, counters.hit(checks, round((START + at) * 1e6), charge=cost > 0))


def told(decision: Decision) -> tuple[int, float | None, float]:
    assert decision.shown is not None
    usage = decision.shown.usage
    retry = usage.retry_us if usage.retry_us is None else usage.retry_us / 1e6
    return decision.shown.remaining, retry, usage.reset_us / 1e6


def follow(counted: Rule, rows: list[Row]) -> None:
    counters = MemoryCounters()
    for number, (at, cost, *expected) in enumerate(rows):
        decision = hit(counters, counted, at, cost)
        assert (number, *told(decision)) == (number, *expected)
        assert decision.allowed is (expected[1] == 0)


def test_sliding_window_counts_an_entry_until_exactly_one_window_later() -> None:
    """The exact log: edges to the microsecond, costs, a cost that never fits, a clock that jumps back."""
    rows: list[Row] = [
        (0, 0, 3, 0, 0),
        (0, 1, 2, 0, 60),
        (10, 1, 1, 0, 50),
        (10, 1, 0, 0, 50),
        (10, 0, 0, 50, 50),
        (60 - US, 1, 0, US, US),
        (60, 1, 0, 0, 10),
        (70 - US, 1, 0, US, US),
        (70, 2, 0, 0, 50),
        (70, 3, 0, 60, 50),
        (70, 4, 0, None, 50),
        (65, 1, 0, 55, 55),
        (120, 1, 0, 0, 10),
        (130, 0, 2, 0, 50),
        (180, 0, 3, 0, 0),
        (180, 3, 0, 0, 60),
        (179, 1, 0, 61, 61),
        (240 - US, 1, 0, US, US),
        (240, 3, 0, 0, 60),
    ]
    follow(rule(Algorithm.SLIDING_WINDOW, 3), rows)


def test_sliding_window_charges_at_the_last_moment_seen_when_the_clock_jumps_back() -> None:
    """A charge after a jump back is entered at the counter's own time, so it leaves with the last one."""
    rows: list[Row] = [(50, 1, 2, 0, 60), (20, 1, 1, 0, 90), (110 - US, 0, 1, 0, US), (110, 0, 3, 0, 0)]
    follow(rule(Algorithm.SLIDING_WINDOW, 3), rows)


def test_fixed_window_counts_until_the_end_of_the_interval() -> None:
    """Intervals are aligned to the epoch; reset is the interval's end; a jump back stays in the later one."""
    rows: list[Row] = [
        (59, 0, 3, 0, 0),
        (59, 1, 2, 0, 1),
        (60 - US, 2, 0, 0, US),
        (60 - US, 1, 0, US, US),
        (60, 1, 2, 0, 60),
        (60, 1, 1, 0, 60),
        (30, 1, 0, 0, 90),
        (30, 1, 0, 90, 90),
        (61, 4, 0, None, 59),
        (120, 0, 3, 0, 0),
        (120, 2, 1, 0, 60),
        (121, 2, 1, 59, 59),
        (121, 0, 1, 0, 59),
    ]
    follow(rule(Algorithm.FIXED_WINDOW, 3), rows)


def test_sliding_window_counter_weighs_the_interval_before() -> None:
    """Ten in one interval leave at one each six seconds of the next, rounded up to whole units in use."""
    rows: list[Row] = [
        (0, 0, 10, 0, 0),
        (0, 10, 0, 0, 66),
        (0, 1, 0, 66, 66),
        (60, 1, 0, 6, 6),
        (66 - US, 1, 0, US, US),
        (66, 1, 0, 0, 6),
        (72, 0, 1, 0, 6),
        (72, 2, 1, 6, 6),
        (72, 11, 1, None, 6),
        (62, 1, 0, 10, 10),
        (120, 0, 9, 0, 60),
        (180, 0, 10, 0, 0),
        (180, 10, 0, 0, 66),
        (300, 10, 0, 0, 66),
    ]
    follow(rule(Algorithm.SLIDING_WINDOW_COUNTER, 10), rows)


def test_sliding_window_counter_weighs_no_more_than_all_when_the_clock_jumps_back() -> None:
    """Before its interval begins, the one before counts whole, as at the beginning."""
    rows: list[Row] = [(0, 4, 6, 0, 75), (60, 1, 5, 0, 15), (30, 0, 5, 0, 45)]
    follow(rule(Algorithm.SLIDING_WINDOW_COUNTER, 10), rows)


def test_sliding_window_counter_takes_no_charge_for_older_when_the_clock_jumps_back() -> None:
    """Within an interval, too, the time of the last charge is the earliest that counts."""
    rows: list[Row] = [(0, 10, 0, 0, 66), (90, 1, 4, 0, 6), (80, 0, 4, 0, 16)]
    follow(rule(Algorithm.SLIDING_WINDOW_COUNTER, 10), rows)


def test_token_bucket_gives_six_per_minute_one_each_ten_seconds() -> None:
    """A rate below one per second: full at first, then a token each ten seconds, to the microsecond."""
    rows: list[Row] = [
        (0, 0, 6, 0, 0),
        (0, 6, 0, 0, 10),
        (1.2, 1, 0, 8.8, 8.8),
        (2.4, 1, 0, 7.6, 7.6),
        (10 - US, 1, 0, US, US),
        (10, 1, 0, 0, 10),
        (15, 2, 0, 15, 5),
        (30, 1, 1, 0, 10),
        (30, 7, 1, None, 10),
        (20, 1, 0, 0, 20),
        (20, 1, 0, 20, 20),
        (35, 0, 0, 5, 5),
        (90 - US, 0, 5, 0, US),
        (90, 0, 6, 0, 0),
        (1000, 6, 0, 0, 10),
    ]
    follow(rule(Algorithm.TOKEN_BUCKET, 6), rows)


def test_token_bucket_admits_every_token_to_a_caller_each_1200_ms() -> None:
    """Asking every 1.2 s for two minutes passes the six held and the twelve regained, no fewer."""
    counters, counted = MemoryCounters(), rule(Algorithm.TOKEN_BUCKET, 6)
    assert sum(hit(counters, counted, step * 1.2).allowed for step in range(101)) == 18


def test_token_bucket_drained_and_left_three_seconds_has_thirty_of_a_hundred() -> None:
    """A bucket of 100 refilled at 10/s: the burst is what may be used at once, the rate what comes back."""
    rows: list[Row] = [
        (0, 101, 100, None, 0),
        (0, 100, 0, 0, 0.1),
        (3, 31, 30, 0.1, 0.1),
        (3, 30, 0, 0, 0.1),
        (13, 0, 100, 0, 0),
    ]
    follow(rule(Algorithm.TOKEN_BUCKET, 10, window=1, burst=100), rows)


def test_token_bucket_with_a_burst_below_its_limit_holds_the_burst() -> None:
    """A thousand a minute, but no more than two at once."""
    rows: list[Row] = [(0, 2, 0, 0, 0.06), (0, 1, 0, 0.06, 0.06), (0.06, 1, 0, 0, 0.06), (1, 3, 2, None, 0)]
    follow(rule(Algorithm.TOKEN_BUCKET, 1000, burst=2), rows)


CHANGES = [
    # algorithm, retry and reset when the limit is lowered from 5 to 2 with 5 in use
    (Algorithm.SLIDING_WINDOW, 60),
    (Algorithm.FIXED_WINDOW, 60),
    (Algorithm.SLIDING_WINDOW_COUNTER, 108),
    (Algorithm.TOKEN_BUCKET, 30),
]


@pytest.mark.parametrize(("algorithm", "retry"), CHANGES)
def test_a_changed_limit_keeps_what_is_used(algorithm: Algorithm, retry: float) -> None:
    """Raised: the difference is free at once. Lowered: nothing is until less than the new limit is in use."""
    counters, old = MemoryCounters(), rule(algorithm, 5)
    hit(counters, old, 0, 5)
    assert told(hit(counters, replace(old, limit=8), 0, 0))[0] == 3
    assert told(hit(counters, replace(old, limit=2), 0, 0)) == (0, retry, retry)
    assert told(hit(counters, replace(old, limit=2), retry - US, 0))[0] == 0
    assert told(hit(counters, replace(old, limit=2), retry, 0))[0] > 0
    assert told(hit(counters, old, 0, 0))[0] == 0


def test_a_raised_burst_is_usable_at_once() -> None:
    """What is kept is what is missing, so a bucket of 10 that becomes one of 50 has 40 more."""
    counters, old = MemoryCounters(), rule(Algorithm.TOKEN_BUCKET, 10, window=1)
    hit(counters, old, 0, 10)
    assert told(hit(counters, replace(old, burst=50), 0, 0))[0] == 40


def test_a_changed_rate_rounds_a_begun_token_to_missing() -> None:
    """1.6 tokens are missing at 6 a minute, and as many at 7, whose tokens have other parts (60,000,000)."""
    counters, old = MemoryCounters(), rule(Algorithm.TOKEN_BUCKET, 6)
    hit(counters, old, 0, 1)
    hit(counters, old, 4, 1)
    new = replace(old, limit=7)
    assert told(hit(counters, new, 4, 0)) == (5, 0, 5.142858)
    assert told(hit(counters, new, 9.142857, 0))[0] == 5
    assert told(hit(counters, new, 9.142858, 0))[0] == 6


def test_a_changed_rate_rounds_what_is_missing_up() -> None:
    """A part that does not divide is in the counter's favour, by less than a microsecond of refill."""
    counters, old = MemoryCounters(), rule(Algorithm.TOKEN_BUCKET, 7)
    hit(counters, old, 0, 1)
    hit(counters, old, US, 1)
    assert told(hit(counters, replace(old, limit=6), US, 0)) == (4, 0, 9.999999)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_cost_above_capacity_never_fits_and_changes_nothing(algorithm: Algorithm) -> None:
    """Such a request has no retry, and the next one finds the counter as it was."""
    counters, counted = MemoryCounters(), rule(algorithm, 3)
    assert told(hit(counters, counted, 0, 4)) == (3, None, 0)
    assert told(hit(counters, counted, 0, 3))[:2] == (0, 0)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_identifiers_are_counted_apart(algorithm: Algorithm) -> None:
    """Another client, rule, generation or identifier has a counter of its own."""
    counters, counted = MemoryCounters(), rule(algorithm, 1)
    others = [
        Check("c", counted, "=", 1, 1, 1),
        Check("d", counted, "=", 1, 1, 1),
        Check("c", replace(counted, id="s"), "=", 1, 1, 1),
        Check("c", replace(counted, window_seconds=61), "=", 1, 1, 1),
        Check("c", counted, "=other", 1, 1, 1),
    ]
    assert [counters.hit([check], START, charge=True).admitted for check in others] == [True] * 5
    assert [counters.hit([check], START, charge=True).admitted for check in others] == [False] * 5
