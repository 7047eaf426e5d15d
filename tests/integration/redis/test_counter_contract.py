"""One counter at a time, on every implementation: each algorithm as a table with explicit times.

A row is `(now, cost, used, retry, reset)`, times in seconds since a midnight; `used`, `retry` and `reset` are
those after the step. `retry` is 0 exactly when it was admitted and `None` when it never can be. A cost of 0
looks what one unit would get, and charges nothing.
"""

import pytest

from sidecar.domain.algorithms import SECOND_US, Algorithm
from sidecar.domain.decision import Usage
from sidecar.domain.rule import Rule
from tests.integration.redis.counting import Clock, Counts, check, rule

#: One microsecond.
US = 0.000001

Row = tuple[float, int, int, float | None, float]

every = pytest.mark.parametrize("algorithm", Algorithm)


async def hit(counters: Counts, counted: Rule, cost: int = 1) -> Usage:
    answer = await counters.hit([check(counted, cost or 1)], charge=cost > 0)
    (usage,) = answer.usages
    assert answer.admitted is usage.fits
    return usage


async def follow(counters: Counts, clock: Clock, counted: Rule, rows: list[Row]) -> None:
    for number, row in enumerate(rows):
        clock.at(row[0])
        usage = await hit(counters, counted, row[1])
        retry = usage.retry_us if usage.retry_us is None else usage.retry_us / SECOND_US
        assert (number, usage.used, retry, usage.reset_us / SECOND_US) == (number, *row[2:])
        assert usage.fits is (row[3] == 0)


async def test_sliding_window_forgets_each_entry_one_window_after_it(counters: Counts, clock: Clock) -> None:
    """Entries of different costs leave one by one, to the microsecond, and a jump back changes nothing."""
    rows: list[Row] = [
        (0, 0, 0, 0, 0),
        (0, 2, 2, 0, 60),
        (20, 1, 3, 0, 40),
        (40, 2, 5, 0, 20),
        (40, 1, 5, 20, 20),
        (40, 3, 5, 40, 20),
        (40, 5, 5, 60, 20),
        (40, 6, 5, None, 20),
        (10, 1, 5, 50, 50),
        (60 - US, 2, 5, US, US),
        (60, 2, 5, 0, 20),
        (80 - US, 0, 5, US, US),
        (80, 0, 4, 0, 20),
        (100, 5, 2, 20, 20),
        (120, 5, 5, 0, 60),
        (180, 0, 0, 0, 0),
    ]
    await follow(counters, clock, rule(Algorithm.SLIDING_WINDOW, 5), rows)


async def test_sliding_window_enters_a_charge_after_a_jump_back_at_its_own_last_moment(
    counters: Counts, clock: Clock
) -> None:
    """The counter's clock stands still until the other has caught up; what is told is by the other."""
    rows: list[Row] = [
        (100, 1, 1, 0, 60),
        (10, 1, 2, 0, 150),
        (10, 1, 3, 0, 150),
        (10, 1, 3, 150, 150),
        (160 - US, 1, 3, US, US),
        (160, 3, 3, 0, 60),
    ]
    await follow(counters, clock, rule(Algorithm.SLIDING_WINDOW, 3), rows)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 20])
async def test_sliding_window_waits_for_the_entry_whose_end_makes_room(
    number: int, counters: Counts, clock: Clock
) -> None:
    """Entries of 1, 2, 3, 1, 2, … units, a second apart: each unit asked for is free when its entry ends."""
    costs = [1 + at % 3 for at in range(number)]
    counted = rule(Algorithm.SLIDING_WINDOW, sum(costs))
    for moment, cost in enumerate(costs):
        clock.at(moment)
        await hit(counters, counted, cost)
    clock.at(number)
    waits = [(await hit(counters, counted, cost)).retry_us for cost in range(1, sum(costs) + 1)]
    ends = [moment + 60 for moment, cost in enumerate(costs) for _ in range(cost)]
    assert waits == [(end - number) * SECOND_US for end in ends]


async def test_fixed_window_starts_anew_with_each_interval(counters: Counts, clock: Clock) -> None:
    """Intervals are aligned to the epoch, and after a jump back the later one stays in force."""
    rows: list[Row] = [
        (30, 0, 0, 0, 0),
        (30, 4, 4, 0, 30),
        (45, 2, 4, 15, 15),
        (45, 6, 4, None, 15),
        (60 - US, 1, 5, 0, US),
        (60 - US, 1, 5, US, US),
        (60, 5, 5, 0, 60),
        (10, 1, 5, 110, 110),
        (120 - US, 0, 5, US, US),
        (120, 0, 0, 0, 0),
        (600, 1, 1, 0, 60),
        (599, 1, 2, 0, 61),
    ]
    await follow(counters, clock, rule(Algorithm.FIXED_WINDOW, 5), rows)


async def test_sliding_window_counter_weighs_the_interval_before(counters: Counts, clock: Clock) -> None:
    """Eight of the minute before leave at one each 7.5 s, rounded up to units in use."""
    rows: list[Row] = [
        (30, 8, 8, 0, 37.5),
        (30, 1, 8, 37.5, 37.5),
        (60, 0, 8, 7.5, 7.5),
        (67.5 - US, 1, 8, US, US),
        (67.5, 1, 8, 0, 7.5),
        (67.5, 2, 8, 15, 7.5),
        (90, 0, 5, 0, 7.5),
        (90, 3, 8, 0, 7.5),
        (90, 9, 8, None, 7.5),
        (65, 1, 8, 32.5, 32.5),
        (59, 0, 8, 38.5, 38.5),
        (120, 0, 4, 0, 15),
        (180, 0, 0, 0, 0),
    ]
    await follow(counters, clock, rule(Algorithm.SLIDING_WINDOW_COUNTER, 8), rows)


async def test_token_bucket_gives_back_a_token_each_ten_seconds(counters: Counts, clock: Clock) -> None:
    """Six a minute: a rate below one a second is exact, and a begun token is not lost."""
    rows: list[Row] = [
        (0, 5, 5, 0, 10),
        (4, 1, 6, 0, 6),
        (4, 1, 6, 6, 6),
        (4, 7, 6, None, 6),
        (4, 3, 6, 26, 6),
        (10 - US, 1, 6, US, US),
        (10, 1, 6, 0, 10),
        (25, 0, 5, 0, 5),
        (5, 0, 6, 15, 15),
        (70 - US, 0, 1, 0, US),
        (70, 0, 0, 0, 0),
        (7, 6, 6, 63, 13),
    ]
    await follow(counters, clock, rule(Algorithm.TOKEN_BUCKET, 6), rows)


async def test_token_bucket_asked_each_1200_ms_passes_one_in_ten_seconds(
    counters: Counts, clock: Clock
) -> None:
    """Six at first; then the first asking at or after each tenth second, no other."""
    passed, counted = [], rule(Algorithm.TOKEN_BUCKET, 6)
    for step in range(51):
        clock.at(step * 1.2)
        if (await hit(counters, counted)).fits:
            passed.append(step)
    assert passed == [0, 1, 2, 3, 4, 5, 9, 17, 25, 34, 42, 50]


async def test_token_bucket_drained_and_left_three_seconds_has_thirty_of_a_hundred(
    counters: Counts, clock: Clock
) -> None:
    """Refilled at ten a second: 31 do not fit, 30 do, and after ten seconds it is full and no fuller."""
    rows: list[Row] = [
        (0, 100, 100, 0, 0.1),
        (3, 31, 70, 0.1, 0.1),
        (3, 30, 100, 0, 0.1),
        (3, 1, 100, 0.1, 0.1),
        (60, 101, 0, None, 0),
        (60, 100, 100, 0, 0.1),
    ]
    await follow(counters, clock, rule(Algorithm.TOKEN_BUCKET, 10, 1, burst=100), rows)


async def test_token_bucket_rounds_a_moment_up_to_the_microsecond_at_which_a_token_is_whole(
    counters: Counts, clock: Clock
) -> None:
    """Seven a minute is a token each 8,571,428 4/7 µs."""
    rows: list[Row] = [
        (0, 7, 7, 0, 8.571429),
        (8.571428, 1, 7, US, US),
        (8.571429, 1, 7, 0, 8.571429),
        (17.142857, 1, 7, US, US),
        (17.142858, 1, 7, 0, 8.571428),
    ]
    await follow(counters, clock, rule(Algorithm.TOKEN_BUCKET, 7), rows)


@every
async def test_requests_of_the_same_microsecond_count_as_several(
    algorithm: Algorithm, counters: Counts
) -> None:
    """Five at one moment are five."""
    counted = rule(algorithm, 5)
    answers = [await hit(counters, counted) for _ in range(7)]
    assert [answer.used for answer in answers] == [1, 2, 3, 4, 5, 5, 5]
    assert [answer.fits for answer in answers] == [True] * 5 + [False] * 2


@every
async def test_looking_answers_as_a_unit_would_get_and_changes_nothing(
    algorithm: Algorithm, counters: Counts
) -> None:
    """However often it is looked, before, between and after charges."""
    counted = rule(algorithm, 2)
    seen = []
    for cost in (0, 0, 1, 0, 0, 1, 0, 0):
        answer = await hit(counters, counted, cost)
        seen.append((answer.used, answer.fits))
    open_, full = (1, True), (2, False)
    assert seen == [(0, True), (0, True), open_, open_, open_, (2, True), full, full]


@every
async def test_a_cost_above_the_capacity_never_fits_and_changes_nothing(
    algorithm: Algorithm, counters: Counts
) -> None:
    """There is no moment to wait for, and what was left is left."""
    counted = rule(algorithm, 3)
    await hit(counters, counted)
    refused = await hit(counters, counted, 4)
    assert (refused.fits, refused.used, refused.retry_us) == (False, 1, None)
    assert (await hit(counters, counted, 2)).fits


@every
async def test_a_limit_lowered_in_use_leaves_nothing_and_raised_is_usable_at_once(
    algorithm: Algorithm, counters: Counts
) -> None:
    """50 used of 50, then a limit of 10, then of 100."""
    assert (await hit(counters, rule(algorithm, 50), 50)).fits
    lowered = await hit(counters, rule(algorithm, 10))
    assert not lowered.fits
    assert lowered.used >= 10
    assert lowered.retry_us is not None
    assert lowered.retry_us > 0
    raised = await hit(counters, rule(algorithm, 100))
    assert raised.fits
    # What a bucket of 10 misses is never more than 10, but only looked at, it was left as it was.
    assert raised.used == 51


@every
async def test_a_lowered_limit_holds_until_less_than_it_is_used(
    algorithm: Algorithm, counters: Counts, clock: Clock
) -> None:
    """Waiting exactly the retry lets one pass, one microsecond less does not."""
    await hit(counters, rule(algorithm, 50), 50)
    lowered = rule(algorithm, 10)
    refused = await hit(counters, lowered)
    retry = refused.retry_us or 0
    assert refused.reset_us == retry > 0
    clock.now += retry - 1
    assert not (await hit(counters, lowered)).fits
    clock.now += 1
    assert (await hit(counters, lowered)).fits


async def test_a_raised_burst_is_usable_at_once(counters: Counts) -> None:
    """The rate stays: a drained bucket of 10 that becomes one of 50 has 40, and back at 10 it has none."""
    small, large = (rule(Algorithm.TOKEN_BUCKET, 10, burst=burst) for burst in (10, 50))
    await hit(counters, small, 10)
    assert not (await hit(counters, large, 41)).fits
    assert (await hit(counters, large, 40)).used == 50
    assert (await hit(counters, small, 0)).used == 10


async def test_a_begun_token_is_missing_after_a_changed_rate(counters: Counts, clock: Clock) -> None:
    """1.6 tokens are missing after 4 s at six a minute, and no fewer at seven, whose parts are others."""
    await hit(counters, rule(Algorithm.TOKEN_BUCKET, 6))
    clock.at(4)
    await hit(counters, rule(Algorithm.TOKEN_BUCKET, 6))
    changed = await hit(counters, rule(Algorithm.TOKEN_BUCKET, 7), 0)
    assert (changed.used, changed.reset_us) == (2, 5_142_858)
