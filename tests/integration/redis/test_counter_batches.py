"""Requests that travel in one call: each is decided as if it had come alone, one after the other."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted
from sidecar.domain.ruleset import MAX_CHECKS
from sidecar.infrastructure.redis.calling import Arguments, Caller, Script
from sidecar.infrastructure.redis.connection import connect_to_one
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import (
    PATIENCE_SECONDS,
    Clock,
    Counts,
    MemoryStore,
    check,
    key_of,
    rule,
    store_on,
    used,
)
from tests.parts import StoreServer

every = pytest.mark.parametrize("algorithm", Algorithm)


@pytest.fixture
def store(redis: Redis, key_prefix: str, clock: Clock) -> RedisCounterStore:
    """Its clock stands, so that what is left can be compared to the unit."""
    return store_on(redis, key_prefix, clock)


class Calls(Caller):
    """Notes how many keys each call of a script carries."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.carried: list[int] = []

    def begin(self, script: Script, slot: int | None, given: Arguments, *rest: Any) -> None:
        self.carried.append(given.keys)
        super().begin(script, slot, given, *rest)


async def together(store: Counts, *requests: Sequence[Check]) -> list[Counted]:
    return list(await asyncio.gather(*(store.hit(checks) for checks in requests)))


@every
async def test_of_two_the_first_takes_the_last_unit_and_the_second_is_refused(
    algorithm: Algorithm, store: RedisCounterStore
) -> None:
    """With the same numbers as if they had come one after the other."""
    counted = check(rule(algorithm, 3))
    await store.hit([replace(counted, cost=2)])
    first, second, third = await together(store, [counted], [counted], [counted])
    assert [answer.admitted for answer in (first, second, third)] == [True, False, False]
    assert [answer.usages[0].used for answer in (first, second, third)] == [3, 3, 3]
    assert (second.usages[0].retry_us or 0) > 0


@every
async def test_a_call_with_many_says_what_they_alone_would_have_been_told(
    algorithm: Algorithm, store: RedisCounterStore, clock: Clock
) -> None:
    """Requests of one, two and three rules, some refused, some that only look, compared with the model."""
    rules = [check(rule(algorithm, limit, name=f"r{limit}")) for limit in (4, 6, 9)]
    requests = [rules[:1], rules[1:], rules, [replace(rules[0], cost=3)], rules[::-1], rules[2:]] * 3
    charges = [True, True, False, True, True, True] * 3
    model = MemoryStore(clock)
    alone = [await model.hit(one, charge=charge) for one, charge in zip(requests, charges, strict=True)]
    asked = (store.hit(one, charge=charge) for one, charge in zip(requests, charges, strict=True))
    assert await asyncio.gather(*asked) == alone
    assert {answer.admitted for answer in alone} == {True, False}


@every
async def test_a_refused_request_charges_nothing_of_others_in_its_call(
    algorithm: Algorithm, store: RedisCounterStore
) -> None:
    """Neither those before it nor those after it, nor its own rules that had room."""
    tight, wide = check(rule(algorithm, 1, name="tight")), check(rule(algorithm, 9, name="wide"))
    answers = await together(store, [wide], [tight], [tight, wide], [wide])
    assert [answer.admitted for answer in answers] == [True, True, False, True]
    assert [used(answer)[-1] for answer in answers] == [1, 1, 1, 2]


BROKEN: list[tuple[str, list[str]]] = [
    ("SET", ["rubbish"]),
    ("RPUSH", ["no", "counter"]),
    ("HSET", ["no", "counter"]),
    ("ZADD", ["1", "rubbish"]),
]


@every
@pytest.mark.parametrize(("command", "broken"), BROKEN)
async def test_a_broken_counter_is_begun_anew_and_disturbs_no_other_of_its_call(
    algorithm: Algorithm,
    command: str,
    broken: list[str],
    redis: Redis,
    key_prefix: str,
) -> None:
    """Before it and after it in the call, and beside it in its own request."""
    store = store_on(redis, key_prefix)
    good, bad = check(rule(algorithm, 5, name="good")), check(rule(algorithm, 5, name="bad"))
    await store.hit([good])
    await redis.execute_command(command, key_of(key_prefix, bad.rule), *broken)  # type: ignore[no-untyped-call]
    answers = await together(store, [good], [bad], [good, bad], [good])
    assert [answer.admitted for answer in answers] == [True] * 4
    assert [used(answer) for answer in answers] == [[2], [1], [3, 2], [4]]


async def test_many_at_once_are_one_call(server: StoreServer, key_prefix: str) -> None:
    """The server runs one script for all that one turn of the event loop brings."""
    async with connect_to_one(server.url, PATIENCE_SECONDS) as redis:
        store, counted = store_on(redis, key_prefix), check(rule(Algorithm.FIXED_WINDOW, 10, 86_400))
        await store.hit([counted])
        before = await calls_of(redis, "evalsha")
        answers = await together(store, *([counted] for _ in range(50)))
        assert await calls_of(redis, "evalsha") == before + 1
        assert [answer.admitted for answer in answers] == [True] * 9 + [False] * 41


async def calls_of(redis: Redis, command: str) -> int:
    return int((await redis.info("commandstats"))[f"cmdstat_{command}"]["calls"])


async def test_a_call_carries_at_most_64_checks_and_splits_no_request(
    store_url: str, key_prefix: str
) -> None:
    """Requests of 1, 24, 40 and 64 rules: each has the answers to its own."""
    async with connect_to_one(store_url, PATIENCE_SECONDS) as redis:
        store = store_on(redis, key_prefix)
        store._caller = calls = Calls(redis)
        checks = [check(rule(Algorithm.FIXED_WINDOW, 9, name=f"r{n}")) for n in range(64)]
        answers = await together(store, *(checks[:n] for n in (40, 40, 1, 64, 24, 40, 64)))
        assert [len(answer.usages) for answer in answers] == [40, 40, 1, 64, 24, 40, 64]
        assert sorted(answer.usages[0].used for answer in answers) == [1, 2, 3, 4, 5, 6, 7]
        assert calls.carried == [40, 41, 64, 64, 64]
        assert max(calls.carried) <= MAX_CHECKS


async def test_resets_are_another_counter(counters: Counts) -> None:
    """Raised, counting begins anew; who does not know of it yet counts on the old one."""
    counted = check(rule(Algorithm.FIXED_WINDOW, 2))
    await counters.hit([replace(counted, cost=2)])
    once = replace(counted, resets=1)
    assert used(await counters.hit([once])) == [1]
    assert not (await counters.hit([counted])).admitted
    assert used(await counters.hit([replace(counted, resets=2)])) == [1]


async def test_forgotten_counters_begin_anew(store: RedisCounterStore) -> None:
    """As many as there were; the others keep their counts."""
    one, other, missing = (check(rule(Algorithm.TOKEN_BUCKET, 5), identifier=f"={n}") for n in "abc")
    await together(store, [one], [other])
    assert await store.forget([one, missing]) == 1
    assert [used(answer) for answer in await together(store, [one], [other])] == [[1], [2]]


async def test_the_identifiers_of_a_rule_are_found_and_no_others(
    redis: Redis, store: RedisCounterStore
) -> None:
    """Those of its present generation, whatever stands in them; a search goes on until the cursor is 0."""
    counted = rule(Algorithm.FIXED_WINDOW, 5)
    wanted = {"=a", "=x*[y]?", "~ip=2001:db8::/64", "=ü|=b", *(f"={n}" for n in range(50))}
    others = [check(rule(Algorithm.FIXED_WINDOW, 5, name="r2")), replace(check(counted), resets=1)]
    others.append(check(rule(Algorithm.FIXED_WINDOW, 5, 3600), identifier="=other"))
    others.append(replace(check(counted, identifier="=other"), client_id="d"))
    await together(store, *([check(counted, identifier=name)] for name in wanted), *([one] for one in others))
    found: set[str] = set()
    cursor = None
    while cursor != 0:
        cursor, page = await store.identifiers("c", counted, 0, cursor or 0)
        found |= set(page)
    assert found == wanted
