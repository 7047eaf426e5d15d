"""Looking at counters: whose, under which limit, and that nothing is charged by it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sidecar.application import searching
from sidecar.application import usage as usage_module
from sidecar.application.ports import StoreUnavailable
from sidecar.application.searching import Searches
from sidecar.application.usage import Busiest, CounterUsage, IdentifierCount, InUse
from sidecar.domain.decision import Check
from sidecar.domain.identity import IdentifierReader
from sidecar.domain.request import RequestMetadata, canonical_host
from sidecar.domain.rule import Client, Mode, OnMissing, Rule
from sidecar.domain.ruleset import MAX_CHECKS, RuleSet
from sidecar.domain.sharding import SHARDS, ShardBy
from tests.counters import MemoryStore
from tests.decisions import rule

EXEMPT = Rule(id="free", route="/free", mode=Mode.EXEMPT)
RULES = (
    rule("all"),
    rule("user", identifier_type="user_id", overrides={"vip": 99, "bad": "block", "own": "unlimited"}),
    rule("ip", identifier_type="ip"),
    rule("both", identifier_type=("user_id", "ip")),
    EXEMPT,
)
CLIENT = Client(id="c", rules=RULES)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def usage(store: MemoryStore) -> CounterUsage:
    return used_with(store, {})


def used_with(
    store: MemoryStore, resets: dict[tuple[str, str], int], client: Client = CLIENT
) -> CounterUsage:
    usage = CounterUsage(Searches(store))
    usage.rule_set = RuleSet([client], resets=resets)
    return usage


async def forgotten(usage: CounterUsage, client: Client, rules: Sequence[Rule], identifier: str) -> int:
    return await usage.forget((await usage.find(client, rules, identifier)).checks)


async def charge(store: MemoryStore, usage: CounterUsage, times: int = 1, **request: Any) -> None:
    """As often as that, by what the rule set makes of such a request."""
    asked = RequestMetadata(method="GET", target="/", host=canonical_host(""), client_id="c", **request)
    checks = usage.rule_set.checks_for(asked)
    assert isinstance(checks, list)
    for _ in range(times):
        await store.hit(checks)


async def counts(usage: CounterUsage, client: Client, identifier: str | None = None) -> list[int | None]:
    return [in_use.count if in_use else None for in_use in await usage.counts(client, identifier)]


async def test_what_remains_is_never_less_than_nothing() -> None:
    """A limit may be lowered below what is in use already."""
    counters = MemoryStore()
    lowered = Client(id="c", rules=(rule("r", limit=5),))
    check = Check("c", rule("r", limit=9), "=", 9, 9, 7)
    await counters.hit([check])
    usage = CounterUsage(Searches(counters))
    assert await usage.counts(lowered) == [InUse(7, 0)]
    assert await usage.counts(Client(id="c", rules=(rule("r", limit=9),))) == [InUse(7, 2)]


async def test_counts_are_those_of_each_rule_in_its_order(store: MemoryStore, usage: CounterUsage) -> None:
    """Of everyone together where no identifier is named, of the named one where it fits the rule's type."""
    await charge(store, usage, 3, user_id="ann", address=None)
    await charge(store, usage, 2, user_id="bob", address=None)
    assert await counts(usage, CLIENT) == [5, None, None, None, None]
    assert await counts(usage, CLIENT, "ann") == [5, 3, None, None, None]
    assert await counts(usage, CLIENT, "192.0.2.1") == [5, 0, 0, None, None]
    assert await counts(usage, CLIENT, "ann|192.0.2.1") == [5, 0, None, 0, None]


async def test_looking_charges_nothing(store: MemoryStore, usage: CounterUsage) -> None:
    """However often, whoever is named."""
    for _ in range(3):
        await counts(usage, CLIENT, "ann")
    assert set(store.charges) == {False}
    assert await counts(usage, CLIENT, "ann") == [0, 0, None, None, None]


async def test_many_rules_are_asked_for_in_calls_that_the_store_takes(store: MemoryStore) -> None:
    """And answered in their order."""
    client = Client(id="c", rules=tuple(rule(f"r{n:03}") for n in range(2 * MAX_CHECKS + 1)))
    usage = used_with(store, {}, client)
    assert await counts(usage, client) == [0] * len(client.rules)
    assert store.calls == [MAX_CHECKS, MAX_CHECKS, 1]


async def test_a_client_that_counts_nothing_needs_no_store(store: MemoryStore, usage: CounterUsage) -> None:
    """It answers even while that is away."""
    store.problem = StoreUnavailable("away")
    assert await counts(usage, Client(id="c", rules=(EXEMPT,)), "ann") == [None]
    assert await forgotten(usage, CLIENT, [EXEMPT], "ann") == 0
    with pytest.raises(StoreUnavailable):
        await counts(usage, CLIENT)


@pytest.mark.parametrize(("user", "left"), [("vip", 99), ("ann", 10), ("own", 10), ("bad", 10)])
async def test_an_identifier_is_held_to_its_own_limit(
    usage: CounterUsage, monkeypatch: pytest.MonkeyPatch, store: MemoryStore, user: str, left: int
) -> None:
    """Where the rule overrides it, also when it is found by a search."""
    seen: list[int] = []
    hit = store.hit

    async def noting(checks: Any, *, charge: bool = True) -> Any:
        seen.extend(check.capacity for check in checks if check.rule.id == "user")
        return await hit(checks, charge=charge)

    monkeypatch.setattr(store, "hit", noting)
    await counts(usage, CLIENT, user)
    store.pages = [[f"={user}"]]
    await usage.identifiers(CLIENT, RULES[1], 0)
    assert seen == [left, left]


async def test_counters_that_were_reset_are_looked_at_anew(store: MemoryStore, usage: CounterUsage) -> None:
    """By the rule's own resets and those of the whole client."""
    await charge(store, usage, 3, user_id="ann")
    reset = used_with(store, {("c", "user"): 1, ("c", "*"): 1})
    assert await counts(reset, CLIENT, "ann") == [0, 0, None, None, None]
    await reset.identifiers(CLIENT, RULES[1], 0)
    assert store.searched == ("c", "user", 2)


async def counted(store: MemoryStore, usage: CounterUsage, users: Iterable[tuple[str, int]]) -> None:
    for user, times in users:
        await charge(store, usage, times, user_id=user)


async def test_a_page_of_identifiers_has_their_counts_and_the_way_on(
    store: MemoryStore, usage: CounterUsage
) -> None:
    """Without those whose counter says nothing any more."""
    await counted(store, usage, [("ann", 3), ("bob", 1)])
    store.pages = [["=ann", "=gone"], [], ["=bob"]]
    assert await usage.identifiers(CLIENT, RULES[1], 0) == (1, [IdentifierCount("ann", 3)])
    assert await usage.identifiers(CLIENT, RULES[1], 1) == (2, [])
    assert await usage.identifiers(CLIENT, RULES[1], 2) == (0, [IdentifierCount("bob", 1)])


async def test_a_client_that_is_spread_is_looked_at_shard_by_shard(store: MemoryStore) -> None:
    """Its counters are named as decisions name them, and each call is for one shard."""
    client = Client(id="c", rules=(rule("u", identifier_type="user_id"),), shard_by=ShardBy.IDENTIFIER)
    usage = used_with(store, {}, client)
    users = [f"u{number}" for number in range(100)]
    await counted(store, usage, [(user, 1 + number % 2) for number, user in enumerate(users)])
    store.pages, before = [[f"={user}" for user in users]], len(store.calls)
    _, found = await usage.identifiers(client, client.rules[0], 0)
    assert store.spread
    assert found == [IdentifierCount(user, 1 + number % 2) for number, user in enumerate(users)]
    assert len(store.calls) - before == len(SHARDS)
    assert (await usage.busiest(client, client.rules[0], 100)).looked_at == 100
    assert await counts(usage, client, "u1") == [2]
    assert await forgotten(usage, client, client.rules, "u1") == 1


async def test_secrets_are_shown_as_digits_of_their_hash(store: MemoryStore) -> None:
    """Never as they are."""
    client = Client(id="c", rules=(rule("s", identifier_type="session_id"),))
    usage = used_with(store, {}, client)
    await charge(store, usage, session_id="secret")
    store.pages = [["=secret"]]
    _, (found,) = await usage.identifiers(client, client.rules[0], 0)
    assert found == IdentifierCount("2bb80d53", 1)


async def test_the_busiest_are_those_with_the_highest_counts(store: MemoryStore, usage: CounterUsage) -> None:
    """Over all pages; one that stands on two of them is one."""
    await counted(store, usage, [("ann", 3), ("bob", 1), ("cid", 4), ("dan", 2)])
    store.pages = [["=ann", "=bob"], ["=cid", "=ann"], ["=dan"]]
    best = [IdentifierCount("cid", 4), IdentifierCount("ann", 3), IdentifierCount("dan", 2)]
    assert await usage.busiest(CLIENT, RULES[1], 3) == Busiest(best, 5, complete=True)


async def test_a_search_for_the_busiest_ends_after_so_many(
    store: MemoryStore, usage: CounterUsage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says that there are more."""
    monkeypatch.setattr(usage_module, "MAX_IDENTIFIERS", 2)
    await counted(store, usage, [("ann", 1), ("bob", 2), ("cid", 3)])
    store.pages = [["=ann"], ["=bob"], ["=cid"]]
    found = await usage.busiest(CLIENT, RULES[1], 5)
    assert found == Busiest([IdentifierCount("bob", 2), IdentifierCount("ann", 1)], 2, complete=False)


async def test_an_identifiers_counters_are_forgotten_under_the_rules_that_are_named(
    store: MemoryStore, usage: CounterUsage
) -> None:
    """Those of rules that cannot have it are left alone: resetting a caller must not lift a limit of all."""
    await counted(store, usage, [("ann", 1), ("bob", 1)])
    assert await forgotten(usage, CLIENT, RULES, "ann") == 1
    assert await forgotten(usage, CLIENT, RULES, "ann") == 0
    assert await forgotten(usage, CLIENT, RULES[1:2], "bob") == 1
    assert await forgotten(usage, replace(CLIENT, id="other"), RULES[1:2], "bob") == 0


@pytest.mark.parametrize("identifier", ["2bb80d53", "u|2bb80d53", "secret", "u|secret"])
async def test_an_identifier_is_found_as_it_is_sent_and_as_it_is_shown(
    store: MemoryStore, identifier: str
) -> None:
    """And shown without the secret in it, either way."""
    kind = ("user_id", "session_id") if "|" in identifier else "session_id"
    client = Client(id="c", rules=(rule("s", identifier_type=kind),))
    usage = used_with(store, {}, client)
    await charge(store, usage, user_id="u", session_id="secret")
    await charge(store, usage, user_id="u", session_id="other")
    text, other = ("=u|=secret", "=u|=other") if "|" in identifier else ("=secret", "=other")
    store.pages = [[other], [text, text]]
    found = await usage.find(client, client.rules, identifier)
    assert found.shown == identifier.replace("secret", "2bb80d53")
    assert await usage.forget(found.checks) == 1
    assert await usage.forget([*found.checks] * MAX_CHECKS) == 0


async def test_an_identifier_that_several_rules_read_differently_is_shown_as_a_hash(
    usage: CounterUsage,
) -> None:
    """It is a secret for one of them."""
    client = Client(
        id="c", rules=(rule("u", identifier_type="user_id"), rule("s", identifier_type="session_id"))
    )
    assert (await usage.find(client, client.rules, "secret")).shown == "2bb80d53"
    assert (await usage.find(client, client.rules[:1], "ann")).shown == "ann"


async def test_a_fallback_is_taken_as_it_is_shown(store: MemoryStore) -> None:
    """By looks and by resets."""
    client = Client(id="c", rules=(rule("s", identifier_type="session_id", on_missing=OnMissing.SHARED),))
    usage = used_with(store, {}, client)
    await charge(store, usage, 3, address=None)
    assert await counts(usage, client, "~shared") == [3]
    found = await usage.find(client, client.rules, "~shared")
    assert (found.shown, await usage.forget(found.checks)) == ("~shared", 1)


async def test_what_an_identifier_is_held_to_is_made_once_for_a_page(
    store: MemoryStore, usage: CounterUsage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule may have tens of thousands of overrides, and a page a thousand identifiers."""
    parsed: list[str] = []
    parse = IdentifierReader.parse

    def noting(self: IdentifierReader, written: str) -> tuple[str, ...]:
        parsed.append(written)
        return parse(self, written)

    monkeypatch.setattr(IdentifierReader, "parse", noting)
    store.pages = [[f"=user-{number}" for number in range(200)]]
    await usage.busiest(CLIENT, RULES[1], 3)
    assert len(parsed) <= len(RULES[1].overrides)


async def test_a_search_among_other_keys_ends_after_so_many_steps(
    store: MemoryStore, usage: CounterUsage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and counts what it looked at whether it counts or not."""
    monkeypatch.setattr(usage_module, "MAX_STEPS", 3)
    store.pages = [[], ["=gone"], [], ["=ann"]]
    assert await usage.busiest(CLIENT, RULES[1], 5) == Busiest([], 1, complete=False)


async def test_one_search_runs_at_a_time_and_others_do_not_wait_forever(
    store: MemoryStore, usage: CounterUsage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told to try again; looks that search nothing do not wait."""
    monkeypatch.setattr(searching, "WAIT_SECONDS", 0.01)
    going_on, running, most = asyncio.Event(), 0, 0
    search = store.identifiers

    async def slow(*asked: Any, spread: bool) -> tuple[int, list[str]]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await going_on.wait()
        running -= 1
        return await search(*asked, spread=spread)

    monkeypatch.setattr(store, "identifiers", slow)
    first = asyncio.create_task(usage.busiest(CLIENT, RULES[1], 3))
    await asyncio.sleep(0)
    with pytest.raises(searching.TooManySearches):
        await usage.identifiers(CLIENT, RULES[1], 0)
    assert await counts(usage, CLIENT, "ann") == [0, 0, None, None, None]
    going_on.set()
    await first
    await asyncio.gather(*[usage.busiest(CLIENT, RULES[1], 3) for _ in range(5)])
    assert most == 1
