"""Changes of what the API keeps, in a real server: one step each, told to all, and none lost to another."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from sidecar.application.clients import ClientDirectory
from sidecar.application.known_clients import Conflict
from sidecar.application.ports import AuditEntry, StoredClient, StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.rule import Client, Enforcement
from sidecar.infrastructure.redis.connection import connect_to_one
from sidecar.infrastructure.redis.control import AUDIT_CHARACTERS, AUDIT_ENTRIES, RedisControlStore
from sidecar.infrastructure.validation import dump
from tests.integration.redis.counting import PATIENCE_SECONDS, rule
from tests.parts import StoreServer, until

NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
CLIENT = StoredClient(Client(id="a", name="A"), NOW)
#: Shorter than the tests take; a connection of decisions that does not answer is closed after it.
SHORT_SECONDS = 0.05


def entry(subject: str, before: Any = None, after: Any = None) -> AuditEntry:
    return AuditEntry(NOW, "ops", "client.replace", subject, before, after)


@pytest.fixture
def store(redis: Redis, key_prefix: str) -> RedisControlStore:
    return RedisControlStore(redis, prefix=key_prefix)


def directory_on(store: RedisControlStore) -> ClientDirectory:
    return ClientDirectory(store, lambda rule_set: None, dump, lambda: NOW)


async def test_nothing_stored_is_nothing(store: RedisControlStore) -> None:
    """Not even a version."""
    state = await store.load()
    assert (await store.version(), state.version, state.clients, state.resets) == ("", "", {}, {})
    assert state.enforcement is None
    assert await store.audit(0, 10) == []


async def test_the_switch_is_set_by_who_knows_how_it_stands(store: RedisControlStore) -> None:
    """And taken away, so that the files' own holds again."""
    off, shadow = Enforcement.OFF, Enforcement.SHADOW
    assert not await store.replace_enforcement(off, shadow, entry("lost"))
    assert await store.replace_enforcement(None, off, entry("one"))
    assert not await store.replace_enforcement(None, shadow, entry("lost"))
    assert (await store.load()).enforcement is off
    assert await store.replace_enforcement(off, None, entry("two"))
    assert (await store.load()).enforcement is None
    assert [told.subject for told in await store.audit(0, 10)] == ["two", "one"]


async def test_resets_are_counted_for_each_rule_and_for_all_of_a_client(store: RedisControlStore) -> None:
    """Also when many come at once."""
    resets = [("a", "r"), ("a", "*"), ("b.c", "r")] * 20
    await asyncio.gather(*(store.reset(client, rule_id, entry("x")) for client, rule_id in resets))
    assert (await store.load()).resets == {("a", "r"): 20, ("a", "*"): 20, ("b.c", "r"): 20}


async def test_every_change_has_another_version_and_everything_else_none(store: RedisControlStore) -> None:
    """So whoever asks for the version only misses nothing, and reads nothing in vain."""
    versions = [await store.version()]
    assert await store.replace_client("a", None, CLIENT, entry("a"))
    versions.append(await store.version())
    found = (await store.load()).clients["a"]
    assert await store.replace_client("a", found, replace(found, client=Client(id="a")), entry("a"))
    versions.append(await store.version())
    assert not await store.replace_client("a", found, None, entry("lost"))
    await store.audit(0, 10)
    assert await store.version() == (await store.load()).version == versions[-1]
    await store.replace_enforcement(None, Enforcement.OFF, entry("enforcement"))
    versions.append(await store.version())
    await store.reset("a", "r", entry("reset"))
    versions.append(await store.version())
    assert len(set(versions)) == 5


async def test_of_the_audit_list_the_newest_are_kept(store: RedisControlStore) -> None:
    """A thousand, newest first, and any part of them can be read."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(AUDIT_ENTRIES + 5):
            tasks.create_task(store.note(entry(str(number))))
    await store.note(entry("last"))
    kept = await store.audit(0, 10 * AUDIT_ENTRIES)
    assert len(kept) == AUDIT_ENTRIES
    assert kept[0].subject == "last"
    assert await store.audit(990, 3) == kept[990:993]
    assert await store.audit(AUDIT_ENTRIES, 3) == []


async def test_of_a_large_change_the_audit_list_says_that_it_is_left_out(store: RedisControlStore) -> None:
    """A thousand entries stay small; everything else of it is there."""
    large, small = {"rules": ["x" * AUDIT_CHARACTERS]}, {"rules": ["Größe ✓"]}
    await store.note(entry("a", large, small))
    await store.note(entry("b", small, large))
    newer, older = await store.audit(0, 2)
    left_out = {"left_out": f"more than {AUDIT_CHARACTERS} characters"}
    assert (older.before, older.after) == (left_out, small)
    assert (newer.before, newer.after) == (small, left_out)
    assert replace(newer, before=None, after=None) == entry("b")


async def test_a_client_of_any_size_is_stored_whole(store: RedisControlStore) -> None:
    """Its entry is bounded, it is not."""
    rules = tuple(rule(Algorithm.FIXED_WINDOW, 5, name=f"r{number}") for number in range(2000))
    large = replace(CLIENT, client=Client(id="a", rules=rules))
    assert await store.replace_client("a", None, large, entry("a", None, dump(large.client)))
    assert (await store.load()).clients["a"].client == large.client


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("enforcement", "sometimes"),
        ("resets:a:r", "many"),
        ("resets:a:r", "\ud83d".encode("utf-8", "surrogatepass")),
        ("enforcement", b"\xff"),
        (b"\xff", "x"),
        ("of a later version", "x"),
    ],
)
async def test_a_field_that_cannot_be_read_takes_no_other_down(
    store: RedisControlStore, redis: Redis, key_prefix: str, name: str | bytes, written: str | bytes
) -> None:
    """It is left out, whatever it is."""
    assert await store.replace_client("a", None, CLIENT, entry("a"))
    await redis.hset(f"{key_prefix}:v1:{{control}}", name, written)
    state = await store.load()
    assert (list(state.clients), state.resets, state.enforcement) == (["a"], {}, None)


async def test_an_audit_entry_that_cannot_be_read_takes_no_other_down(
    store: RedisControlStore, redis: Redis, key_prefix: str
) -> None:
    """The others are there."""
    await store.note(entry("a"))
    for written in ("{", "[]", json.dumps({"at": "x"}), b"\xff"):
        await redis.lpush(f"{key_prefix}:v1:{{control}}:audit", written)
    assert await store.audit(0, 10) == [entry("a")]


async def is_heard(redis: Redis, prefix: str) -> bool:
    """Whether somebody listens to what is announced."""
    ((_, listeners),) = await redis.pubsub_numsub(f"{prefix}:v1:{{control}}")
    return bool(listeners)


@pytest.fixture
async def heard(redis: Redis, store: RedisControlStore, key_prefix: str) -> AsyncIterator[list[None]]:
    """What is announced from now on."""
    announcements: list[None] = []

    async def listen() -> None:
        async for announced in store.announcements():
            announcements.append(announced)

    task = asyncio.create_task(listen())
    await until(lambda: is_heard(redis, key_prefix), "it listens")
    yield announcements
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_every_change_is_announced_and_nothing_else(
    store: RedisControlStore, heard: list[None]
) -> None:
    """One after the other; a lost race is no change."""
    assert await store.replace_client("a", None, CLIENT, entry("a"))
    assert not await store.replace_client("a", None, CLIENT, entry("lost"))
    await store.replace_enforcement(None, Enforcement.OFF, entry("enforcement"))
    await store.reset("a", "r", entry("reset"))
    await until(lambda: len(heard) >= 3, "three are heard")
    assert len(heard) == 3


async def test_who_listens_hears_after_any_silence(server: StoreServer) -> None:
    """A connection of decisions would have been given up long ago."""
    async with (
        connect_to_one(server.url, SHORT_SECONDS) as hasty,
        connect_to_one(server.url, PATIENCE_SECONDS) as other,
    ):
        heard: list[None] = []

        async def listen() -> None:
            async for announced in RedisControlStore(hasty, prefix="t").announcements():
                heard.append(announced)

        task = asyncio.create_task(listen())

        await until(lambda: is_heard(other, "t"), "it listens")
        await asyncio.sleep(3 * SHORT_SECONDS)
        await RedisControlStore(other, prefix="t").reset("a", "r", entry("reset"))
        await until(lambda: len(heard) == 1, "the change is heard")
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_who_listens_is_told_when_the_store_goes(server: StoreServer) -> None:
    """So that it can listen again elsewhere."""
    async with connect_to_one(server.url, PATIENCE_SECONDS) as redis:

        async def listen() -> None:
            async for _ in RedisControlStore(redis, prefix="t").announcements():
                pytest.fail("nothing has changed")

        hearing = asyncio.create_task(listen())

        await until(lambda: is_heard(redis, "t"), "it listens")
        server.stop()
        with pytest.raises(StoreUnavailable):
            await hearing


async def test_no_edit_of_a_hundred_on_two_replicas_is_lost(store_url: str, key_prefix: str) -> None:
    """Each adds a rule to the same client, all at once; both replicas know all of them afterwards."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connect_to_one(store_url, PATIENCE_SECONDS)) for _ in range(2)
        ]
        stores = [RedisControlStore(redis, prefix=key_prefix) for redis in clients]
        directories = [directory_on(store) for store in stores]
        await directories[0].create(Client(id="a"), "ops")
        rules = [replace(rule(Algorithm.FIXED_WINDOW, 5, name=f"r{n}"), route=f"/{n}") for n in range(100)]
        added = await asyncio.gather(
            *(directories[n % 2].add_rule("a", one, None, "ops") for n, one in enumerate(rules))
        )
        assert added == rules
        for directory in directories:
            await directory.refresh()
            assert {one.id for one in directory.get("a").client.rules} == {one.id for one in rules}
        told = await stores[0].audit(0, 1000)
        assert [one.action for one in told] == ["policy.create"] * 100 + ["client.create"]


async def test_what_is_stored_and_cannot_be_read_is_no_endless_race(
    store: RedisControlStore, redis: Redis, key_prefix: str
) -> None:
    """A client is replaced or deleted like any other; whoever would change the switch is told."""
    directory = directory_on(store)
    await redis.hset(f"{key_prefix}:v1:{{control}}", mapping={"client:a": "{", "enforcement": "sometimes"})
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await directory.create(Client(id="a"), "ops")).client == Client(id="a")
        await redis.hset(f"{key_prefix}:v1:{{control}}", mapping={"client:c": "{", "version": "7"})
        await directory.delete("c", None, "ops")
        assert not await redis.hexists(f"{key_prefix}:v1:{{control}}", "client:c")
        with pytest.raises(Conflict, match="cannot be read"):
            await directory.enforce(Enforcement.OFF, "ops")
        assert (await directory.create(Client(id="b"), "ops")).client == Client(id="b")
