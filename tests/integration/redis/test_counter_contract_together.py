"""Several counters in one call, and the largest ones, on every implementation."""

from dataclasses import replace

import pytest

from sidecar.domain.algorithms import MAX_INTEGER, SECOND_US, Algorithm
from sidecar.domain.decision import Check, Usage
from sidecar.domain.rule import Rule
from tests.integration.redis.counting import START, Clock, Counts, check, rule, used

every = pytest.mark.parametrize("algorithm", Algorithm)


@every
async def test_a_request_refused_by_one_rule_is_charged_to_none(
    algorithm: Algorithm, counters: Counts
) -> None:
    """Limits of 3 and 10, five calls: the second rule shows 3 used, in whatever order they stand."""
    tight, wide = check(rule(algorithm, 3, name="tight")), check(rule(algorithm, 10, name="wide"))
    answers = [await counters.hit(pair) for pair in [(tight, wide), (wide, tight)] * 2 + [(tight, wide)]]
    assert [answer.admitted for answer in answers] == [True, True, True, False, False]
    assert used(await counters.hit([tight, wide], charge=False)) == [3, 3]


@every
async def test_a_refusal_tells_of_each_rule_whether_it_would_fit(
    algorithm: Algorithm, counters: Counts
) -> None:
    """The one that has room says so, without having charged it."""
    tight, wide = check(rule(algorithm, 1, name="tight")), check(rule(algorithm, 10, name="wide"))
    await counters.hit([tight])
    refused = await counters.hit([wide, tight])
    assert not refused.admitted
    assert refused.usages[0] == Usage(True, 0, 0, 0)
    assert (refused.usages[1].fits, refused.usages[1].used) == (False, 1)


async def test_algorithms_mix_in_one_call(counters: Counts, clock: Clock) -> None:
    """Each by its own rules: at the end of the minute only the fixed window is new."""
    checks = [check(rule(algorithm, 2, name=algorithm.value)) for algorithm in Algorithm]
    clock.at(59)
    assert [used(await counters.hit(checks)) for _ in range(3)] == [[1] * 4, [2] * 4, [2] * 4]
    clock.at(60)
    after = dict(zip(Algorithm, used(await counters.hit(checks, charge=False)), strict=True))
    assert after.pop(Algorithm.FIXED_WINDOW) == 0
    assert set(after.values()) == {2}


@every
async def test_a_shadow_rule_is_charged_while_it_fits_and_refuses_nothing(
    algorithm: Algorithm, counters: Counts
) -> None:
    """Two fit a shadow limit of 2; from the third on it says that it would have refused."""
    real, shadow = check(rule(algorithm, 9)), check(rule(algorithm, 2, name="shadow"), shadow=True)
    answers = [await counters.hit([shadow, real]) for _ in range(4)]
    assert all(answer.admitted for answer in answers)
    assert [used(answer) for answer in answers] == [[1, 1], [2, 2], [2, 3], [2, 4]]
    assert [answer.usages[0].fits for answer in answers] == [True, True, False, False]
    assert answers[-1].usages[0].retry_us == answers[-1].usages[0].reset_us


@every
async def test_a_shadow_rule_is_not_charged_when_the_request_is_refused(
    algorithm: Algorithm, counters: Counts
) -> None:
    """It counts what would have reached it."""
    real, shadow = check(rule(algorithm, 1)), check(rule(algorithm, 9, name="shadow"), shadow=True)
    assert [used(await counters.hit([real, shadow])) for _ in range(3)] == [[1, 1]] * 3


@every
async def test_shadow_rules_are_counted_each_for_itself(algorithm: Algorithm, counters: Counts) -> None:
    """One that is full keeps no other from being charged, and with no enforcing rule all is admitted."""
    full, free = (check(rule(algorithm, limit, name=f"s{limit}"), shadow=True) for limit in (1, 5))
    answers = [await counters.hit([full, free]) for _ in range(3)]
    assert [used(answer) for answer in answers] == [[1, 1], [1, 2], [1, 3]]
    assert all(answer.admitted for answer in answers)


async def test_costs_differ_between_the_rules_of_a_call(counters: Counts) -> None:
    """Each is charged its own."""
    checks = [check(rule(a, 100, name=a.value), 7 * n) for n, a in enumerate(Algorithm, 1)]
    assert used(await counters.hit(checks)) == [7, 14, 21, 28]
    assert used(await counters.hit(checks)) == [14, 28, 42, 56]


@every
async def test_a_call_carries_64_checks(algorithm: Algorithm, counters: Counts) -> None:
    """All are answered in their order; the last alone can refuse them all."""
    checks = [check(rule(algorithm, 100 + n, name=f"r{n}"), 1 + n) for n in range(63)]
    last = check(rule(algorithm, 64, name="last"), 64)
    assert used(await counters.hit([*checks, last])) == list(range(1, 65))
    assert not (await counters.hit([*checks, last])).admitted
    assert used(await counters.hit([*checks, last], charge=False)) == list(range(1, 65))


@every
async def test_counters_are_kept_apart(algorithm: Algorithm, counters: Counts) -> None:
    """Another client, rule, window or identifier is another counter; another limit or cost is not."""
    one = check(rule(algorithm, 5))
    others = [
        replace(one, rule=replace(one.rule, id="s")),
        replace(one, rule=replace(one.rule, window_seconds=61)),
        replace(one, identifier="=x"),
        replace(one, identifier="=:x"),
        replace(one, identifier="=ü"),
    ]
    assert used(await counters.hit([one, *others])) == [1] * 6
    assert used(await counters.hit([replace(one, client_id="d")])) == [1]
    assert used(await counters.hit([replace(one, rule=replace(one.rule, limit=6, cost=2), limit=6)])) == [2]


async def test_an_identifiers_own_limit_is_what_it_is_held_to(counters: Counts) -> None:
    """A check's limit stands above its rule's."""
    own = replace(check(rule(Algorithm.TOKEN_BUCKET, 60)), limit=2, capacity=2)
    await counters.hit([replace(own, cost=2)])
    assert (await counters.hit([own])).usages[0].retry_us == 30 * SECOND_US


@every
async def test_the_answer_carries_the_clock_of_the_store(
    algorithm: Algorithm, counters: Counts, clock: Clock
) -> None:
    """Also after a jump back, when a counter stands at a later moment."""
    for moment in (10.000001, 5.5):
        clock.at(moment)
        assert (await counters.hit([check(rule(algorithm, 5))])).now_us == START + round(moment * SECOND_US)


#: Each with the microseconds that a full one takes to be empty, 17.000003 s after the charge's minute began.
LARGEST = [
    (rule(Algorithm.SLIDING_WINDOW, 100_000), 60_000_000),
    (rule(Algorithm.SLIDING_WINDOW_COUNTER, MAX_INTEGER // 60_000), 102_999_997),
    (rule(Algorithm.SLIDING_WINDOW_COUNTER, MAX_INTEGER // 86_400_000, 86_400), 172_782_999_997),
    (rule(Algorithm.FIXED_WINDOW, MAX_INTEGER), 42_999_997),
    (rule(Algorithm.FIXED_WINDOW, MAX_INTEGER, 86_400), 86_382_999_997),
    (rule(Algorithm.TOKEN_BUCKET, MAX_INTEGER // 60_000_000 * 60_000_000), 60_000_000),
    (rule(Algorithm.TOKEN_BUCKET, 7, burst=MAX_INTEGER // 60_000_000), 1_286_742_745_714_286),
    (rule(Algorithm.TOKEN_BUCKET, 1, 1, burst=MAX_INTEGER // 1_000_000), 9_007_199_254_000_000),
    (rule(Algorithm.TOKEN_BUCKET, 1_000_001, 1, burst=9_007_199_254), 9_007_190_247),
    (rule(Algorithm.TOKEN_BUCKET, 1_000_000, 1, burst=MAX_INTEGER), MAX_INTEGER),
]
largest = pytest.mark.parametrize(
    ("counted", "empty_us"), LARGEST, ids=[f"{r.algorithm}-{r.limit}-{r.burst}" for r, _ in LARGEST]
)


@largest
async def test_the_largest_limits_are_exact_to_the_unit(
    counted: Rule, empty_us: int, counters: Counts
) -> None:
    """All but two, one, one, and then nothing more."""
    capacity = counted.terms().capacity
    answers = [await counters.hit([check(counted, cost)]) for cost in (capacity - 2, 1, 1, 1)]
    assert [answer.admitted for answer in answers] == [True, True, True, False]
    assert [used(answer)[0] for answer in answers] == [capacity - 2, capacity - 1, capacity, capacity]


@largest
async def test_the_largest_limits_are_exact_to_the_microsecond(
    counted: Rule, empty_us: int, counters: Counts, clock: Clock
) -> None:
    """Full, everything fits again after exactly the retry, and not a microsecond before."""
    whole = check(counted, counted.terms().capacity)
    clock.at(17.000003)
    await counters.hit([whole])
    assert (await counters.hit([whole])).usages[0].retry_us == empty_us
    clock.now = min(clock.now + empty_us, MAX_INTEGER) - 1
    assert not (await counters.hit([whole])).admitted
    if clock.now < MAX_INTEGER - 1:  # else it is centuries on, after what a clock can say here
        clock.now += 1
        assert (await counters.hit([whole])).admitted


@pytest.mark.parametrize("above", [1, 2, 3, MAX_INTEGER])
async def test_a_cost_just_above_the_largest_limit_never_fits(above: int, counters: Counts) -> None:
    """2^53 + 1 is no double; it is not taken for 2^53."""
    whole: Check = check(rule(Algorithm.FIXED_WINDOW, MAX_INTEGER), MAX_INTEGER + above)
    (usage,) = (await counters.hit([whole])).usages
    assert usage == Usage(False, 0, None, 0)
