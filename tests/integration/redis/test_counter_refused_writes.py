"""A server that answers but takes no writes: callers hear that it is away, nothing is half charged."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check
from sidecar.infrastructure.redis.connection import connect_to_one
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import PATIENCE_SECONDS, Clock, check, key_of, rule, store_on, used
from tests.parts import StoreServer, free_port, until

CHECKS = [check(rule(algorithm, 9, name=algorithm.value)) for algorithm in Algorithm]


@pytest.fixture
async def redis(server: StoreServer) -> AsyncIterator[Redis]:
    async with connect_to_one(server.url, PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture
def store(redis: Redis, clock: Clock) -> RedisCounterStore:
    return store_on(redis, "t", clock)


async def test_out_of_memory_is_said_and_charges_nothing(redis: Redis, store: RedisCounterStore) -> None:
    """Also when a later rule would be the first to be written, and with memory again it goes on."""
    await store.hit(CHECKS)
    await redis.config_set("maxmemory", 1)
    for checks in (CHECKS, CHECKS[::-1], CHECKS[:1]):
        with pytest.raises(StoreUnavailable, match=r"(?i)oom|memory"):
            await store.hit(checks)
    await redis.config_set("maxmemory", 0)
    assert used(await store.hit(CHECKS)) == [2, 2, 2, 2]


@pytest.mark.parametrize("spoilt", Algorithm)
async def test_out_of_memory_within_a_call_charges_all_or_nothing(
    spoilt: Algorithm, redis: Redis, store: RedisCounterStore, clock: Clock
) -> None:
    """What frees memory is allowed: a call that begins with it may go on, or charges nobody."""
    for _ in range(3):
        await store.hit(CHECKS)
    clock.at(60)  # expired entries of the sliding window are removed first
    await redis.set(key_of("t", rule(spoilt, 9, name=spoilt.value)), "rubbish")
    before = used(await store.hit(CHECKS, charge=False))
    await redis.config_set("maxmemory", 1)
    charged = 1 if await admitted(store, [*CHECKS]) else 0
    await redis.config_set("maxmemory", 0)
    assert used(await store.hit(CHECKS, charge=False)) == [number + charged for number in before]


async def admitted(store: RedisCounterStore, checks: list[Check]) -> bool:
    try:
        return (await store.hit(checks)).admitted
    except StoreUnavailable:
        return False


async def test_a_replica_is_asked_again_until_the_deadline(redis: Redis, store: RedisCounterStore) -> None:
    """It refuses without doing anything; made a primary again in time, it counts, once."""
    await store.hit(CHECKS)
    await redis.replicaof("127.0.0.1", str(free_port()))
    hasty = RedisCounterStore(redis, prefix="t", timeout_seconds=0.1)
    for checks in (CHECKS, CHECKS[::-1]):
        with pytest.raises(StoreUnavailable, match="in time"):
            await hasty.hit(checks)
    asked = asyncio.ensure_future(store.hit(CHECKS))
    await until(lambda: _refused(redis), "it was asked")
    await redis.replicaof("NO", "ONE")
    assert used(await asked) == [2, 2, 2, 2]


async def _refused(redis: Redis) -> bool:
    stats = await redis.info("errorstats")
    return int(stats["errorstat_READONLY"]["count"]) >= 3


async def test_a_server_without_enough_replicas_is_no_store(redis: Redis, store: RedisCounterStore) -> None:
    """`min-replicas-to-write` refuses as a whole as well."""
    await store.hit(CHECKS)
    await redis.config_set("min-replicas-to-write", 1)
    with pytest.raises(StoreUnavailable, match=r"(?i)not enough"):
        await store.hit(CHECKS)
    await redis.config_set("min-replicas-to-write", 0)
    assert used(await store.hit(CHECKS)) == [2, 2, 2, 2]


async def test_a_server_that_forbids_scripts_is_no_store(redis: Redis, store: RedisCounterStore) -> None:
    """As with every refusal, the next call asks again."""
    await redis.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")  # type: ignore[no-untyped-call]
    with pytest.raises(StoreUnavailable, match=r"(?i)permissions"):
        await store.hit(CHECKS)
    await redis.execute_command("ACL", "SETUSER", "default", "+evalsha", "+eval")  # type: ignore[no-untyped-call]
    assert used(await store.hit(CHECKS)) == [1, 1, 1, 1]
