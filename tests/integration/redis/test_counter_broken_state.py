"""Counters that something else has written to: begun anew, with no error and no harm to their neighbours."""

from collections.abc import Awaitable, Callable, Mapping

import pytest
from redis.asyncio import Redis

from sidecar.domain.algorithms import Algorithm
from sidecar.domain.rule import Rule
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import START, Clock, check, key_of, rule, store_on, used

MINUTE = START // 60_000_000
FULL = 2**53

Spoil = Callable[[Redis, str], Awaitable[object]]
Entries = Mapping[str, float]


@pytest.fixture
def store(redis: Redis, key_prefix: str, clock: Clock) -> RedisCounterStore:
    return store_on(redis, key_prefix, clock)


def text(value: str | bytes) -> Spoil:
    return lambda redis, key: redis.set(key, value)


def entries(members: Entries) -> Spoil:
    return lambda redis, key: redis.zadd(key, dict(members))


WRONG_TYPES: dict[str, Spoil] = {
    "list": lambda redis, key: redis.rpush(key, "1:2:3"),
    "set": lambda redis, key: redis.sadd(key, "1:2:3"),
    "hash": lambda redis, key: redis.hset(key, "1", "2"),
    "stream": lambda redis, key: redis.xadd(key, {"1": "2"}),
}
NO_STATE = [
    "",
    " ",
    "x",
    "1",
    "1:",
    ":1",
    "1:2:3:4",
    "-1:2",
    "1:-2",
    "1:2:-3",
    "1.5:2",
    "1:2.5:3",
    "1e3:2",
    "0x1:2",
]
NO_STATE += [
    "nan:nan",
    "inf:inf:inf",
    "1:2\n",
    "1:2:3\n",
    " 1:2",
    "1:2\x00",
    f"1:{'9' * 400}",
    f"{'9' * 400}:1:1",
]
NO_STATE += [f"{MINUTE}:{FULL + 2}", f"{START}:{FULL + 2}:0", f"{START}:1:{FULL + 2}", f"{FULL}:1"]

BROKEN: dict[Algorithm, dict[str, Spoil]] = {
    Algorithm.FIXED_WINDOW: {repr(v)[:30]: text(v) for v in [*NO_STATE, "1:2:3"]},
    Algorithm.SLIDING_WINDOW_COUNTER: {repr(v)[:30]: text(v) for v in [*NO_STATE, "1:2"]},
    Algorithm.TOKEN_BUCKET: {repr(v)[:30]: text(v) for v in [*NO_STATE, "1:2", "5:0:1"]},
}
BROKEN = {
    algorithm: {**spoils, **WRONG_TYPES, "zset": entries({"0000000000000001:1": START})}
    for algorithm, spoils in BROKEN.items()
}
#: Each stands alone in the sorted set, at the moment of the call.
NO_ENTRY = [
    "",
    "x",
    "1:1",
    "0000000000000001",
    "0000000000000001:",
    "0000000000000001:x",
    "000000000000001:1",
]
NO_ENTRY += ["00000000000000001:1", "-000000000000001:1", "0000000000000001:-1", "0000000000000001:0"]
NO_ENTRY += ["0000000000000001:2", "9999999999999999:1", f"{FULL + 1}:1", f"0000000000000009:{'9' * 400}"]
NO_ENTRY += ["0000000000000001:1\n", "nan:1", "0000000000000005:1.5"]
NO_MOMENT = {"inf": float("inf"), "fraction": START + 0.5, "too large": FULL * 2.0, "-inf": float("-inf")}
BROKEN[Algorithm.SLIDING_WINDOW] = {
    **{repr(member)[:30]: entries({member: START}) for member in NO_ENTRY},
    **{name: entries({"0000000000000001:1": moment}) for name, moment in NO_MOMENT.items()},
    **WRONG_TYPES,
    "text": text("1:2:3"),
}
CASES = [
    pytest.param(algorithm, spoil, id=f"{algorithm}-{name.encode('unicode_escape').decode()}")
    for algorithm, spoils in BROKEN.items()
    for name, spoil in spoils.items()
]


@pytest.mark.parametrize(("algorithm", "spoil"), CASES)
async def test_a_broken_counter_starts_anew_and_its_neighbours_go_on(
    algorithm: Algorithm, spoil: Spoil, redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """Charged with others in one call, and from then on it is as good as any."""
    names = ["before", *(a.value for a in Algorithm), "after"]
    algorithms = [Algorithm.FIXED_WINDOW, *Algorithm, Algorithm.SLIDING_WINDOW]
    checks = [check(rule(a, 5, name=name)) for a, name in zip(algorithms, names, strict=True)]
    for _ in range(2):
        await store.hit(checks)
    at = names.index(algorithm.value)
    key = key_of(key_prefix, checks[at].rule)
    await redis.delete(key)
    await spoil(redis, key)
    for counted in (1, 2):
        answer = await store.hit(checks)
        assert answer.admitted
        assert used(answer) == [counted if n == at else 2 + counted for n in range(6)]
    assert 0 < await redis.pttl(key) <= 240_000


@pytest.mark.parametrize(("algorithm", "spoil"), CASES)
async def test_a_broken_counter_is_empty_for_who_looks(
    algorithm: Algorithm, spoil: Spoil, redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """Nothing is used of it, and what was there does not stay without an expiry."""
    counted = rule(algorithm, 5)
    await spoil(redis, key_of(key_prefix, counted))
    (usage,) = (await store.hit([check(counted, 5)], charge=False)).usages
    assert (usage.fits, usage.used, usage.retry_us, usage.reset_us) == (True, 0, 0, 0)
    assert await redis.pttl(key_of(key_prefix, counted)) != -1


@pytest.mark.parametrize("cost", [1, 2, 3])
async def test_rubbish_among_the_entries_is_never_counted(
    cost: int, redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """Where it decides nothing it may stay until it expires; where it would, the counter starts anew."""
    for place in (0.5, 1.5, 2.5):
        counted = rule(Algorithm.SLIDING_WINDOW, 3, name=f"at-{place}")
        await three_entries(store, clock, counted)
        await redis.zadd(key_of(key_prefix, counted), {"rubbish": START + int(place * 1_000_000)})
        clock.at(3)
        (usage,) = (await store.hit([check(counted, cost)])).usages
        assert (usage.fits, usage.used) in ((False, 3), (True, cost))


async def three_entries(store: RedisCounterStore, clock: Clock, counted: Rule) -> None:
    for moment in range(3):
        clock.at(moment)
        await store.hit([check(counted)])


@pytest.mark.parametrize(
    ("place", "cost"),
    [(-1, 1), (1, 2), (9, 1)],
    ids=["before the first", "where room is looked for", "after the last"],
)
async def test_rubbish_where_it_would_decide_makes_the_counter_start_anew(
    *, place: int, cost: int, redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """Before the first entry, where the one is looked for whose end makes room, and after the last."""
    counted, neighbour = (rule(Algorithm.SLIDING_WINDOW, limit, name=f"r{limit}") for limit in (3, 5))
    await three_entries(store, clock, counted)
    await store.hit([check(neighbour, 4)])
    await redis.zadd(key_of(key_prefix, counted), {"rubbish": START + place * 1_000_000 - 1})
    clock.at(3)
    answer = await store.hit([check(neighbour), check(counted, cost)])
    assert answer.admitted
    assert used(answer) == [5, cost]


async def test_expired_rubbish_is_removed_like_any_entry(
    redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """It is not even read."""
    counted = rule(Algorithm.SLIDING_WINDOW, 3)
    await store.hit([check(counted)])
    await redis.zadd(key_of(key_prefix, counted), {"rubbish": 5, "-": float("-inf")})
    assert used(await store.hit([check(counted)])) == [2]
    assert await redis.zcard(key_of(key_prefix, counted)) == 2


async def test_a_call_does_not_fail_after_it_has_charged(
    redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """An entry without cost would have the rubbish found only when the new entry is looked for."""
    counted, neighbour = rule(Algorithm.SLIDING_WINDOW, 9), rule(Algorithm.FIXED_WINDOW, 9, name="n")
    members = ["0000000000000005:0", "0000000000000006:1", "rubbish", "0000000000000007:1"]
    await redis.zadd(key_of(key_prefix, counted), {m: START - 9 + n for n, m in enumerate(members)})
    assert used(await store.hit([check(neighbour), check(counted)])) == [1, 1]
