"""One client that is spread by identifier over the servers of a cluster: counted, found and reset as ever."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from sidecar.application.ports import SERVER_CURSORS
from sidecar.application.searching import Searches
from sidecar.application.usage import CounterUsage
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Mode, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.domain.sharding import SHARDS, ShardBy
from sidecar.infrastructure.redis import counters as counters_module
from sidecar.infrastructure.redis.cluster import Cluster
from sidecar.infrastructure.redis.connection import Store
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import connected, store_on

USERS = [f"user-{number}" for number in range(60)]
RULES = tuple(
    Rule(
        id=name,
        route="/*",
        identifier_type="user_id",
        algorithm=algorithm,
        limit=limit,
        window_seconds=3600,
        mode=mode,
    )
    for name, algorithm, limit, mode in (
        ("few", Algorithm.SLIDING_WINDOW, 3, Mode.ENFORCE),
        ("more", Algorithm.TOKEN_BUCKET, 5, Mode.ENFORCE),
        ("watched", Algorithm.FIXED_WINDOW, 2, Mode.SHADOW),
    )
)
CLIENT = Client(id="spread", rules=RULES, shard_by=ShardBy.IDENTIFIER)
servers = pytest.mark.parametrize("part", ["cluster", "valkey"])


@pytest.fixture
async def store(part: str, url_of: Callable[[str], str]) -> AsyncIterator[Store]:
    async with connected(url_of(part)) as redis:
        yield redis


@pytest.fixture
def counters(store: Store, key_prefix: str) -> RedisCounterStore:
    return store_on(store, key_prefix)


def checks_of(user: str, rule_set: RuleSet | None = None) -> list[Check]:
    checks = (rule_set or RuleSet([CLIENT])).checks_for(
        RequestMetadata(method="GET", target="/x", client_id="spread", user_id=user)
    )
    assert isinstance(checks, list)
    return checks


async def flood(counters: RedisCounterStore, times: int) -> list[int]:
    """All at once; how many of each user's requests are admitted."""
    asked = [counters.hit(checks_of(user)) for _ in range(times) for user in USERS]
    answers = [answer.admitted for answer in await asyncio.gather(*asked)]
    return [sum(answers[number :: len(USERS)]) for number in range(len(USERS))]


def usage_of(counters: RedisCounterStore, rule_set: RuleSet | None = None) -> CounterUsage:
    usage = CounterUsage(Searches(counters))
    usage.rule_set = rule_set or RuleSet([CLIENT])
    return usage


async def listed(usage: CounterUsage, rule: Rule) -> tuple[dict[str, int], set[int]]:
    """Every identifier with its count, and the numbers of the shards that a search went on from."""
    found: dict[str, int] = {}
    cursor, numbers = 0, {0}
    while True:
        cursor, page = await usage.identifiers(CLIENT, rule, cursor)
        found |= {one.identifier: one.count for one in page}
        numbers.add(cursor // SERVER_CURSORS)
        if not cursor:
            return found, numbers


@servers
async def test_limits_are_exact_and_several_rules_one_step(
    counters: RedisCounterStore, store: Store, key_prefix: str
) -> None:
    """What one rule refuses is charged to none; every server of a cluster has a part of the counters."""
    assert await flood(counters, 5) == [3] * len(USERS)
    usage = usage_of(counters)
    for user in USERS[:5]:
        in_use = await usage.counts(CLIENT, user)
        assert [one.count for one in in_use if one] == [3, 3, 2]
    if isinstance(store, Cluster):
        for server in await store.servers():
            assert [key async for key in server.scan_iter(f"{key_prefix}:*", count=1000)]


@servers
async def test_all_identifiers_are_listed_by_one_search_of_each_server(
    counters: RedisCounterStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In however many steps, and no counters but the rule's own."""
    monkeypatch.setattr(counters_module, "SCAN_KEYS", 10)
    await flood(counters, 2)
    usage = usage_of(counters)
    for rule in RULES:
        found, numbers = await listed(usage, rule)
        assert found == dict.fromkeys(USERS, 2)
        assert len(numbers) == (len(await store.servers()) if isinstance(store, Cluster) else 1)
    busiest = await usage.busiest(CLIENT, RULES[0], 100)
    assert (len(busiest.identifiers), busiest.complete) == (len(USERS), True)
    assert await counters.identifiers("spread", RULES[0], 0, len(SHARDS) * SERVER_CURSORS, spread=True) == (
        0,
        [],
    )


@servers
async def test_one_identifier_and_a_whole_rule_are_reset(counters: RedisCounterStore) -> None:
    """The others keep their counts."""
    await flood(counters, 2)
    usage = usage_of(counters)
    assert await usage.forget((await usage.find(CLIENT, RULES, USERS[0])).checks) == len(RULES)
    assert (await listed(usage, RULES[0]))[0] == dict.fromkeys(USERS[1:], 2)
    rule_set = RuleSet([CLIENT], resets={("spread", "few"): 1})
    reset = usage_of(counters, rule_set)
    assert (await listed(reset, RULES[0]))[0] == {}
    assert (await listed(reset, RULES[1]))[0] == dict.fromkeys(USERS[1:], 2)
    await counters.hit(checks_of(USERS[1], rule_set))
    assert [one.count for one in await reset.counts(CLIENT, USERS[1]) if one] == [1, 3, 2]


@pytest.mark.parametrize("part", ["cluster"])
async def test_what_only_would_be_refused_is_one_step_with_what_is_counted(
    counters: RedisCounterStore,
) -> None:
    """A cluster refuses a step with keys of two tags."""
    block = Rule(id="block", route="/*", mode=Mode.BLOCK)
    client = Client(id="spread", rules=(*RULES, block), shard_by=ShardBy.IDENTIFIER)
    rule_set = RuleSet([client], Policy(enforcement=Enforcement.SHADOW))
    for user in USERS[:20]:
        checks = checks_of(user, rule_set)
        fits = {c.rule.id: u.fits for c, u in zip(checks, (await counters.hit(checks)).usages, strict=True)}
        assert fits == {"few": True, "more": True, "watched": True, "block": False}
