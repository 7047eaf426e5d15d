"""What the API keeps, in a real server: compared and set in one step, and read one by one."""

import asyncio
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from sidecar.application.ports import AuditEntry, StoredClient, StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.rule import Client, Enforcement, Rule
from sidecar.infrastructure.redis.control import RedisControlStore
from tests.integration.redis.counting import check, key_of, rule, store_on

CREATED = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
RICH = Rule(
    id="videos",
    route="/api/{user}/videos",
    method=("GET", "HEAD"),
    identifier_type=("ip", "path:user"),
    algorithm=Algorithm.TOKEN_BUCKET,
    limit=100,
    window_seconds=60,
    burst=200,
    cost=2,
)


class Clients:
    """The clients of a `RedisControlStore`, changed by somebody."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.control = RedisControlStore(redis, prefix=prefix)

    async def all(self) -> dict[str, StoredClient]:
        return dict((await self.control.load()).clients)

    async def get(self, client_id: str) -> StoredClient | None:
        return (await self.all()).get(client_id)

    async def replace(self, client_id: str, old: StoredClient | None, new: StoredClient | None) -> bool:
        return await self.control.replace_client(client_id, old, new, entry(client_id))


def entry(subject: str) -> AuditEntry:
    return AuditEntry(CREATED, "ops", "client.replace", subject, None, {"name": "Größe"})


@pytest.fixture
def repository(redis: Redis, key_prefix: str) -> Clients:
    return Clients(redis, key_prefix)


def stored(client_id: str, *rules: Rule, name: str = "Größe ✓") -> StoredClient:
    return StoredClient(Client(id=client_id, name=name, hosts=("a.example",), rules=rules), CREATED)


async def put(repository: Clients, new: StoredClient) -> StoredClient:
    """Stores it as new, and returns it with its version."""
    assert await repository.replace(new.client.id, None, new)
    found = await repository.get(new.client.id)
    assert found is not None
    return found


async def test_what_is_stored_is_read_back(repository: Clients) -> None:
    """Every field of client and rules, and the moment to the microsecond."""
    new = stored("a", RICH, *(rule(algorithm, 5, name=algorithm.value) for algorithm in Algorithm))
    found = await put(repository, new)
    assert (found.client, found.created_at) == (new.client, CREATED)
    assert found.version
    assert await repository.all() == {"a": found}


async def test_an_unknown_client_is_none(repository: Clients) -> None:
    """And of nothing stored there is nothing to list."""
    assert await repository.get("a") is None
    assert await repository.all() == {}


async def test_a_client_is_created_once(repository: Clients) -> None:
    """The second creator is told, and changes nothing."""
    found = await put(repository, stored("a"))
    assert not await repository.replace("a", None, stored("a", RICH))
    assert await repository.get("a") == found


async def test_a_change_needs_the_version_that_it_changes(repository: Clients) -> None:
    """The first of two who read the same wins; who then reads again may go on."""
    first = await put(repository, stored("a"))
    assert await repository.replace("a", first, replace(first, client=stored("a", RICH).client))
    assert not await repository.replace("a", first, replace(first, client=stored("a", name="lost").client))
    second = await repository.get("a")
    assert second is not None
    assert second.client.rules == (RICH,)
    assert second.version != first.version
    assert await repository.replace("a", second, stored("a"))


async def test_a_deletion_needs_the_version_that_it_deletes(repository: Clients) -> None:
    """What has changed since is not deleted; what is gone cannot be changed."""
    first = await put(repository, stored("a"))
    await repository.replace("a", first, stored("a", RICH))
    assert not await repository.replace("a", first, None)
    second = await repository.get("a")
    assert await repository.replace("a", second, None)
    assert await repository.get("a") is None
    assert not await repository.replace("a", second, stored("a"))
    assert await repository.get("a") is None


async def test_of_many_who_change_at_once_one_wins(repository: Clients) -> None:
    """However they arrive."""
    old = await put(repository, stored("a"))
    news = [stored("a", name=f"n{number}") for number in range(30)]
    won = await asyncio.gather(*(repository.replace("a", old, new) for new in news))
    assert won.count(True) == 1
    found = await repository.get("a")
    assert found is not None
    assert found.client == news[won.index(True)].client


async def test_prefixes_keep_products_apart(redis: Redis, key_prefix: str) -> None:
    """Two on one server do not see each other's clients."""
    one, other = (Clients(redis, f"{key_prefix}{n}") for n in (1, 2))
    await put(one, stored("a"))
    assert await other.all() == {}
    assert await redis.keys(f"{key_prefix}2:*") == []


def text(**changes: Any) -> str:
    """A stored client with some fields as they should not be."""
    client = {"id": "b", "name": "", "hosts": [], "rules": []}
    return json.dumps({"created_at": CREATED.isoformat(), "client": client, **changes})


UNREADABLE = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "a number": "7",
    "null": "null",
    "nothing in it": "{}",
    "no text": b"\xff\xfe\x00",
    "UTF-16": text().encode("utf-16"),
    "another's": text(client={"id": "a"}),
    "no client": text(client=None),
    "a wrong client": text(client={"id": "b", "rules": [{"route": "no"}]}),
    "an unknown field": text(client={"id": "b", "colour": "red"}),
    "no moment": text(created_at=None),
    "a wrong moment": text(created_at="yesterday"),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("written", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_unreadable_client_is_left_out_and_takes_no_other_down(
    written: str | bytes,
    redis: Redis,
    repository: Clients,
    key_prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With an error in the log each time it is read."""
    found = await put(repository, stored("a"))
    await redis.hset(f"{key_prefix}:v1:{{control}}", "client:b", written)
    assert await repository.all() == {"a": found}
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1


async def test_a_key_of_another_type_is_said_as_the_store_being_away(
    redis: Redis, repository: Clients, key_prefix: str
) -> None:
    """By all ways of asking."""
    await redis.set(f"{key_prefix}:v1:{{control}}", "text")
    for asking in (
        repository.control.load(),
        repository.control.version(),
        repository.replace("a", None, stored("a")),
        repository.control.reset("a", "*", entry("a")),
    ):
        with pytest.raises(StoreUnavailable):
            await asking


async def test_each_change_has_a_version_and_an_audit_entry_and_a_lost_race_has_none(
    repository: Clients,
) -> None:
    """Newest first; what did not happen is not told."""
    control = repository.control
    versions = [await control.version()]
    await repository.replace("a", None, stored("a"))
    versions.append(await control.version())
    assert not await repository.replace("a", None, stored("a", RICH))
    assert await control.version() == versions[-1]
    await control.replace_enforcement(None, Enforcement.SHADOW, entry("enforcement"))
    await control.reset("a", "videos", entry("videos"))
    await control.reset("a", "videos", entry("videos again"))
    state = await control.load()
    assert len({*versions, state.version}) == 3
    assert (state.enforcement, state.resets) == (Enforcement.SHADOW, {("a", "videos"): 2})
    subjects = ["videos again", "videos", "enforcement", "a"]
    assert await control.audit(0, 10) == [entry(subject) for subject in subjects]
    assert await control.audit(1, 2) == [entry(subject) for subject in subjects[1:3]]


async def test_resets_begin_other_counters(redis: Redis, key_prefix: str) -> None:
    """Each raises the generation in the key; who still has the old rule set counts on the old one."""
    store, limited = store_on(redis, key_prefix), check(rule(Algorithm.FIXED_WINDOW, 2, 31_536_000), 2)
    for resets in range(3):
        assert (await store.hit([replace(limited, resets=resets)])).admitted
    assert not (await store.hit([limited])).admitted
    generations = ["", ".1", ".2"]
    expected = {key_of(key_prefix, limited.rule).removesuffix(":=") + f"{g}:=" for g in generations}
    assert set(await redis.keys(f"{key_prefix}:*")) == {key.encode() for key in expected}
    assert await store.forget([limited]) == 1
    assert (await store.hit([limited])).admitted
