"""The census on real stores: how near its number is, how it decays, what a flood of identifiers leaves."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from redis.asyncio import Redis

from sidecar.application.census import Census
from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.domain.decision import Decision
from sidecar.domain.identity import encode
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import RuleSet
from sidecar.infrastructure.redis.connection import Store, connect, connect_to_one
from sidecar.infrastructure.redis.counters import RedisCounterStore
from sidecar.infrastructure.telemetry.metrics import Metrics
from tests.integration.redis.counting import PATIENCE_SECONDS
from tests.parts import StoreServer, until
from tests.topologies import ClusterServers

CAP = 100
#: Who comes while the store is asked about those before.
MOMENT = 500


class Nobody:
    """Watches nothing."""

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        pass


def rule(name: str = "r", **more: object) -> Rule:
    fields = {"route": "/*", "identifier_type": "session_id", "limit": 3, "window_seconds": 3600}
    return Rule(**{"id": name, **fields, **more})  # type: ignore[arg-type]


def counters_on(redis: Store, prefix: str) -> RedisCounterStore:
    return RedisCounterStore(redis, prefix=prefix, timeout_seconds=PATIENCE_SECONDS)


@pytest.fixture
def counters(redis: Redis, key_prefix: str) -> RedisCounterStore:
    return counters_on(redis, key_prefix)


async def told(counters: RedisCounterStore, of: Rule, numbers: range, resets: int = 0) -> int:
    """The number after these identifiers were seen, as the census tells them: some thousands at once."""
    number = 0
    for first in range(numbers.start, numbers.stop, 5000):
        seen = [encode(f"session-{each}") for each in range(first, min(first + 5000, numbers.stop))]
        number = await counters.live_identifiers("c", of, resets, seen)
    return number


async def test_the_number_is_within_a_few_percent(counters: RedisCounterStore) -> None:
    """Whoever is seen again counts once."""
    number = await told(counters, rule(), range(20_000))
    assert number == pytest.approx(20_000, rel=0.03)
    assert await told(counters, rule(), range(10_000)) == number
    assert await counters.live_identifiers("c", rule(), 0, []) == number


async def test_few_are_counted_exactly(counters: RedisCounterStore) -> None:
    """A cap of a hundred is not a matter of luck."""
    assert await told(counters, rule(), range(100)) == pytest.approx(100, abs=2)


async def test_who_does_not_come_again_is_gone_after_two_windows(
    counters: RedisCounterStore, redis: Redis, key_prefix: str
) -> None:
    """And nothing of it is left in the store."""
    short = rule(window_seconds=1)
    assert await told(counters, short, range(1000)) > 900

    async def is_empty() -> bool:
        return await counters.live_identifiers("c", short, 0, []) == 0

    await until(is_empty, "nobody is left")
    assert [key async for key in redis.scan_iter(f"{key_prefix}:*")] == []


async def test_it_is_kept_for_each_rule_and_begun_anew_with_its_counters(
    counters: RedisCounterStore, redis: Redis, key_prefix: str
) -> None:
    """Its keys are named like counters, so they share their slot; two for each rule, never without expiry."""
    await told(counters, rule("a"), range(50))
    assert await told(counters, rule("b"), range(10)) == pytest.approx(10, abs=1)
    assert await told(counters, rule("a"), range(5), resets=1) == 5
    keys = [key async for key in redis.scan_iter(f"{key_prefix}:*")]
    assert 3 <= len(keys) <= 6
    for key in keys:
        assert key.startswith(f"{key_prefix}:v1:{{c}}:".encode())
        assert 3600 < await redis.ttl(key) <= 2 * 3600


async def test_a_search_for_identifiers_does_not_show_it(counters: RedisCounterStore) -> None:
    await told(counters, rule(), range(50))
    assert (await counters.identifiers("c", rule(), 0, 0))[1] == []


class Scene:
    """A decider on a real store, whose census is taken when the test says so."""

    def __init__(self, counters: RedisCounterStore, *rules: Rule) -> None:
        self.census = Census(counters, Metrics(embedded=False))
        self._evaluator = RateLimitEvaluator(counters, Nobody(), WithoutStore(LocalCounters()), self.census)
        rule_set = RuleSet([Client(id="c", rules=rules)])
        self._evaluator.rule_set = self.census.rule_set = rule_set

    async def ask(self, session: str, address: str = "192.0.2.1") -> Decision:
        return await self._evaluator.evaluate(
            RequestMetadata(
                method="GET",
                target="/",
                client_id="c",
                session_id=session,
                address=IPv4Address(address),
                has_address=True,
            )
        )

    async def flood(self, number: int, addresses: int) -> int:
        """So many sessions, one request each, from so many addresses in turn; how many were admitted."""
        admitted = 0
        for each in range(number):
            decision = await self.ask(f"flood-{each}", f"198.51.100.{each % addresses}")
            admitted += decision.allowed
            if each % MOMENT == MOMENT - 1:
                await self.census.take()
        return admitted


@asynccontextmanager
async def scene(url: str, *rules: Rule) -> AsyncIterator[Scene]:
    async with connect_to_one(url, PATIENCE_SECONDS) as redis:
        yield Scene(counters_on(redis, "rl"), *rules)


async def size(server: StoreServer) -> int:
    async with connect_to_one(server.url, PATIENCE_SECONDS) as redis:
        return int(await redis.dbsize())


async def test_a_flood_of_identifiers_does_not_fill_the_store(server: StoreServer) -> None:
    """Five thousand session ids: about the cap, one more for each address, and two of the census."""
    addresses = 10
    async with scene(server.url, rule(max_identifiers=CAP)) as of:
        admitted = await of.flood(5000, addresses)
        assert CAP < admitted <= CAP + 1 + 3 * addresses
        assert await size(server) <= CAP + 1 + addresses + 2


async def test_without_a_cap_every_identifier_has_a_counter(server: StoreServer) -> None:
    """What the cap is for."""
    async with scene(server.url, rule()) as of:
        assert await of.flood(1000, 10) == 1000
        assert 1000 < await size(server) <= 1002


async def test_those_who_were_there_keep_what_they_have_used(server: StoreServer) -> None:
    """Newcomers share what their address has, and are refused when it is used up."""
    async with scene(server.url, rule(max_identifiers=CAP)) as of:
        for each in range(CAP // 2):
            await of.ask(f"old-{each}")
        await of.census.take()
        await of.flood(1000, 5)
        newcomers = [await of.ask(f"new-{each}", "203.0.113.9") for each in range(5)]
        assert [decision.allowed for decision in newcomers] == [True] * 3 + [False] * 2
        assert newcomers[-1].shown is not None
        assert newcomers[-1].shown.usage.used == 3
        old = [await of.ask("old-0", "203.0.113.9") for _ in range(3)]
        assert [decision.allowed for decision in old] == [True, True, False]


async def test_a_flood_before_the_store_has_said_anything_is_bounded_by_each_process(
    server: StoreServer,
) -> None:
    """Three processes that have not told each other yet: the cap of each, and no more."""
    rules = rule(max_identifiers=CAP)
    async with (
        scene(server.url, rules) as one,
        scene(server.url, rules) as two,
        scene(server.url, rules) as three,
    ):
        for number, each in enumerate((one, two, three)):
            for session in range(3 * CAP):
                await each.ask(f"{number}-{session}")
        assert await size(server) <= 3 * (CAP + 1) + 2
        for each in (one, two, three):
            await each.census.take()
        for number, each in enumerate((one, two, three)):
            for session in range(3 * CAP):
                await each.ask(f"later-{number}-{session}")
        assert await size(server) <= 3 * (CAP + 1) + 2 + 1  # and the one address


@pytest.fixture(scope="module")
def cluster(valkey_binary: Path) -> Iterator[ClusterServers]:
    with ClusterServers(valkey_binary, primaries=3, replicas=0) as servers:
        yield servers


async def test_in_a_cluster_it_is_where_the_counters_are(cluster: ClusterServers) -> None:
    """So one call looks at a counter and at the one instead of it, and counts identifiers as well."""
    store = connect(cluster.url, PATIENCE_SECONDS)
    try:
        of = Scene(counters_on(store, "rl"), rule(max_identifiers=CAP))
        assert await of.flood(1000, 10) <= CAP + 1 + 3 * 10
    finally:
        await store.aclose()
    sizes = sorted([await size(server) for server in cluster.servers])
    assert sizes[:2] == [0, 0]
    assert CAP < sizes[2] <= CAP + 1 + 10 + 2
