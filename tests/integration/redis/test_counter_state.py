"""What counters look like in a real server: their keys, expiries and size, and the clock they are counted by.

Expiries are compared as moments of the server's own clock, taken around the call: a slow machine makes no
difference.
"""

from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from sidecar.application.ports import CounterStore
from sidecar.domain.algorithms import SECOND_US, Algorithm
from sidecar.domain.rule import Rule
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import Clock, check, key_of, rule, store_on, used

every = pytest.mark.parametrize("algorithm", Algorithm)


@pytest.fixture
def store(redis: Redis, key_prefix: str, clock: Clock) -> RedisCounterStore:
    return store_on(redis, key_prefix, clock)


async def server_ms(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


@dataclass
class Expiry:
    """Watches one key: when it expires, by the server's clock."""

    redis: Redis
    key: str

    async def remains_after(self, store: CounterStore, counted: Rule, cost: int) -> tuple[int, int]:
        """At least and at most how many milliseconds the key had right after one call; 0 only looks."""
        before = await server_ms(self.redis)
        await store.hit([check(counted, cost or 1)], charge=cost > 0)
        after = await server_ms(self.redis)
        expires = int(await self.redis.pexpiretime(self.key))
        return expires - after, expires - before


NEEDS = [
    # algorithm, charges (when, cost), and the seconds for which the state matters after the last of them
    (Algorithm.SLIDING_WINDOW, [(0, 1)], 60),
    (Algorithm.SLIDING_WINDOW, [(0, 1), (30, 2), (59.9, 1)], 60),
    (Algorithm.FIXED_WINDOW, [(0, 1)], 60),
    (Algorithm.FIXED_WINDOW, [(0, 1), (45, 1)], 15),
    (Algorithm.FIXED_WINDOW, [(59, 1)], 1),
    (Algorithm.FIXED_WINDOW, [(59.6, 1)], 0.4),
    (Algorithm.SLIDING_WINDOW_COUNTER, [(0, 1)], 120),
    (Algorithm.SLIDING_WINDOW_COUNTER, [(0, 1), (45, 1)], 75),
    (Algorithm.SLIDING_WINDOW_COUNTER, [(45, 1), (59.5, 1)], 60.5),
    (Algorithm.TOKEN_BUCKET, [(0, 1)], 10),
    (Algorithm.TOKEN_BUCKET, [(0, 6)], 60),
    (Algorithm.TOKEN_BUCKET, [(0, 6), (14, 1)], 56),
    (Algorithm.TOKEN_BUCKET, [(0, 1), (9.5, 1)], 10.5),
]


@pytest.mark.parametrize(("algorithm", "charges", "needed"), NEEDS)
async def test_a_counter_expires_when_it_says_nothing_more_and_within_twice_that(
    *,
    algorithm: Algorithm,
    charges: list[tuple[float, int]],
    needed: float,
    redis: Redis,
    store: RedisCounterStore,
    clock: Clock,
    key_prefix: str,
) -> None:
    """Never before, since it would be forgotten, nor much later."""
    counted = rule(algorithm, 6)
    expiry = Expiry(redis, key_of(key_prefix, counted))
    for moment, cost in charges:
        clock.at(moment)
        least, most = await expiry.remains_after(store, counted, cost)
    assert needed * 1000 <= most
    assert least <= 2 * needed * 1000


@every
@pytest.mark.parametrize("window", [1, 31_536_000], ids=["a second", "a year"])
async def test_the_shortest_and_the_longest_window_expire_in_time(
    *,
    algorithm: Algorithm,
    window: int,
    redis: Redis,
    store: RedisCounterStore,
    clock: Clock,
    key_prefix: str,
) -> None:
    """Charged when an interval of that length begins."""
    clock.now = 56 * 31_536_000 * SECOND_US
    counted = rule(algorithm, 1, window)
    needed = window * 1000 * (2 if algorithm is Algorithm.SLIDING_WINDOW_COUNTER else 1)
    least, most = await Expiry(redis, key_of(key_prefix, counted)).remains_after(store, counted, 1)
    assert needed <= most
    assert least <= 2 * needed


@every
@pytest.mark.parametrize("cost", [1, 3, 0], ids=["admitted", "refused", "looked at"])
async def test_a_counter_without_expiry_heals(
    algorithm: Algorithm, cost: int, redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """Whatever is asked of it next."""
    counted = rule(algorithm, 3)
    await store.hit([check(counted)])
    await redis.persist(key_of(key_prefix, counted))
    least, most = await Expiry(redis, key_of(key_prefix, counted)).remains_after(store, counted, cost)
    needed = {Algorithm.SLIDING_WINDOW_COUNTER: 120, Algorithm.TOKEN_BUCKET: 40 if cost == 1 else 20}
    assert needed.get(algorithm, 60) * 1000 <= most
    assert least <= needed.get(algorithm, 60) * 2000


@every
async def test_a_counter_that_says_nothing_any_more_and_has_no_expiry_goes(
    algorithm: Algorithm, redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """A look long after gives it the shortest there is."""
    counted = rule(algorithm, 3)
    await store.hit([check(counted)])
    await redis.persist(key_of(key_prefix, counted))
    clock.at(600)
    least, _ = await Expiry(redis, key_of(key_prefix, counted)).remains_after(store, counted, 0)
    assert least <= 1


@pytest.mark.parametrize("cost", [6, 0], ids=["refused", "looked at"])
async def test_an_expiry_too_short_for_a_lowered_limit_is_lengthened(
    cost: int, redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """30 of 60 a minute are back in 30 s; of 6 a minute, the 6 that a full bucket misses take a minute."""
    counted, lowered = rule(Algorithm.TOKEN_BUCKET, 60), rule(Algorithm.TOKEN_BUCKET, 6)
    expiry = Expiry(redis, key_of(key_prefix, counted))
    assert (await expiry.remains_after(store, counted, 30))[0] <= 31_000
    least, most = await expiry.remains_after(store, lowered, cost)
    assert most >= 60_000
    assert least <= 120_000


async def test_a_counter_whose_clock_is_ahead_is_not_kept_by_asking(
    redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """The server's clock was an hour ahead and has been set right: what it left behind expires."""
    right = clock.now
    for counted in (rule(algorithm, 3, name=algorithm.value) for algorithm in Algorithm):
        expiry = Expiry(redis, key_of(key_prefix, counted))
        clock.now = right + 3_600_000_000
        await expiry.remains_after(store, counted, 3)
        clock.now = right
        await redis.pexpire(expiry.key, 5_000)
        expires = await redis.pexpiretime(expiry.key)
        await expiry.remains_after(store, counted, 1)
        assert await redis.pexpiretime(expiry.key) == expires


async def test_refusals_and_looks_do_not_lengthen_a_life(
    redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """Nobody keeps a counter by asking."""
    for counted in (rule(algorithm, 3, name=algorithm.value) for algorithm in Algorithm):
        expiry = Expiry(redis, key_of(key_prefix, counted))
        await expiry.remains_after(store, counted, 3)
        expires = await redis.pexpiretime(expiry.key)
        await expiry.remains_after(store, counted, 1)
        await expiry.remains_after(store, counted, 0)
        assert await redis.pexpiretime(expiry.key) == expires


@every
async def test_keys_name_layout_client_rule_generation_and_identifier(
    algorithm: Algorithm, redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """The client in braces, so that in a cluster all its counters share a slot; one key a counter."""
    counted = rule(algorithm, 3, name="videos-read")
    await store.hit([check(counted, identifier="=a:b")])
    expected = f"{key_prefix}:v1:{{c}}:videos-read:{counted.generation}:=a:b"
    assert await redis.keys(f"{key_prefix}:*") == [expected.encode()]


@every
async def test_looking_stores_nothing(
    algorithm: Algorithm, redis: Redis, store: RedisCounterStore, key_prefix: str
) -> None:
    """Nor does a refusal: who is never admitted has no key."""
    counted = rule(algorithm, 3)
    await store.hit([check(counted)], charge=False)
    await store.hit([check(counted, 4)])
    assert await redis.keys(f"{key_prefix}:*") == []


async def test_a_sliding_window_removes_at_most_a_thousand_expired_entries_a_call(
    redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """Of 3,000 expired ones, three calls remove all; the answers are exact meanwhile."""
    counted = rule(Algorithm.SLIDING_WINDOW, 5000, 3600)
    for _ in range(3000):
        await store.hit([check(counted)])
    clock.at(3600)
    seen = []
    for _ in range(4):
        (usage,) = (await store.hit([check(counted)])).usages
        seen.append((usage.used, usage.reset_us, await redis.zcard(key_of(key_prefix, counted))))
    hour = 3_600_000_000
    assert seen == [(1, hour, 2001), (2, hour, 1002), (3, hour, 3), (4, hour, 4)]


async def test_the_rules_of_a_call_share_the_thousand(
    redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """800 expired entries each: the second rule keeps 600 of them until the next call."""
    checks = [check(rule(Algorithm.SLIDING_WINDOW, 5000, 3600, name=name)) for name in "ab"]
    for _ in range(800):
        await store.hit(checks)
    clock.at(3600)
    sizes = []
    for _ in range(2):
        assert (await store.hit(checks)).admitted
        sizes.append([await redis.zcard(key_of(key_prefix, asked.rule)) for asked in checks])
    assert sizes == [[1, 601], [2, 2]]


async def test_of_entries_that_end_one_by_one_each_goes_with_the_next_charge(
    redis: Redis, store: RedisCounterStore, clock: Clock, key_prefix: str
) -> None:
    """None, one and several of the oldest have ended: those are removed, and no other."""
    counted = rule(Algorithm.SLIDING_WINDOW, 9)
    seen = []
    for moment in (0, 1, 2, 3, 59.9, 60, 61.5, 63, 63, 124):
        clock.at(moment)
        (usage,) = (await store.hit([check(counted)])).usages
        seen.append((usage.used, await redis.zcard(key_of(key_prefix, counted))))
    assert seen == [(n, n) for n in (1, 2, 3, 4, 5, 5, 5, 4, 5, 1)]


async def test_flushed_scripts_are_no_error(redis: Redis, store: RedisCounterStore) -> None:
    """The script is sent again, and nothing is counted twice or lost."""
    counted = rule(Algorithm.FIXED_WINDOW, 10)
    for number in range(1, 4):
        await redis.script_flush()
        assert used(await store.hit([check(counted)])) == [number]


async def test_counters_go_by_the_clock_of_the_server(redis: Redis, key_prefix: str) -> None:
    """Once per call, in microseconds."""
    store, counted = store_on(redis, key_prefix), rule(Algorithm.SLIDING_WINDOW, 10)
    for number in (1, 2):
        before = await server_us(redis)
        answer = await store.hit([check(counted)])
        assert before <= answer.now_us <= await server_us(redis)
        assert used(answer) == [number]
        (last,) = await redis.zrange(key_of(key_prefix, counted), -1, -1, withscores=True)
        assert last[1] == answer.now_us


async def server_us(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1_000_000 + int(microseconds)


@every
async def test_a_call_of_64_checks_runs_few_commands(
    algorithm: Algorithm, redis: Redis, store: RedisCounterStore
) -> None:
    """No more than eight a check to charge it, and to refuse it as many more as halve the entries."""
    checks = [check(rule(algorithm, 256, name=f"r{n}")) for n in range(64)]
    await store.hit(checks)
    before = await commands_run(redis)
    for _ in range(255):
        await store.hit(checks)
    charging = await commands_run(redis) - before
    assert charging <= 255 * (1 + 64 * 8) + 1
    assert not (await store.hit([check(asked.rule, 128) for asked in checks])).admitted
    assert await commands_run(redis) - before - charging <= 1 + 64 * (8 + 2 + 8) + 1


async def commands_run(redis: Redis) -> int:
    """Within scripts as well."""
    counts = await redis.info("commandstats")
    return sum(count["calls"] for count in counts.values())
