"""The clients that the API made, in a real server: compared and set in one step, and read one by one."""

import asyncio
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from sidecar.application.ports import StoredClient, StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.redis.clients import RedisClientRepository
from tests.integration.redis.counting import rule

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


@pytest.fixture
def repository(redis: Redis, key_prefix: str) -> RedisClientRepository:
    return RedisClientRepository(redis, prefix=key_prefix)


def stored(client_id: str, *rules: Rule, name: str = "Größe ✓") -> StoredClient:
    return StoredClient(Client(id=client_id, name=name, hosts=("a.example",), rules=rules), CREATED)


async def put(repository: RedisClientRepository, new: StoredClient) -> StoredClient:
    """Stores it as new, and returns it with its version."""
    assert await repository.replace(new.client.id, None, new)
    found = await repository.get(new.client.id)
    assert found is not None
    return found


async def test_what_is_stored_is_read_back(repository: RedisClientRepository) -> None:
    """Every field of client and rules, and the moment to the microsecond."""
    new = stored("a", RICH, *(rule(algorithm, 5, name=algorithm.value) for algorithm in Algorithm))
    found = await put(repository, new)
    assert (found.client, found.created_at) == (new.client, CREATED)
    assert found.version
    assert dict(await repository.all()) == {"a": found}


async def test_an_unknown_client_is_none(repository: RedisClientRepository) -> None:
    """And of nothing stored there is nothing to list."""
    assert await repository.get("a") is None
    assert dict(await repository.all()) == {}


async def test_a_client_is_created_once(repository: RedisClientRepository) -> None:
    """The second creator is told, and changes nothing."""
    found = await put(repository, stored("a"))
    assert not await repository.replace("a", None, stored("a", RICH))
    assert await repository.get("a") == found


async def test_a_change_needs_the_version_that_it_changes(repository: RedisClientRepository) -> None:
    """The first of two who read the same wins; who then reads again may go on."""
    first = await put(repository, stored("a"))
    assert await repository.replace("a", first, replace(first, client=stored("a", RICH).client))
    assert not await repository.replace("a", first, replace(first, client=stored("a", name="lost").client))
    second = await repository.get("a")
    assert second is not None
    assert second.client.rules == (RICH,)
    assert second.version != first.version
    assert await repository.replace("a", second, stored("a"))


async def test_a_deletion_needs_the_version_that_it_deletes(repository: RedisClientRepository) -> None:
    """What has changed since is not deleted; what is gone cannot be changed."""
    first = await put(repository, stored("a"))
    await repository.replace("a", first, stored("a", RICH))
    assert not await repository.replace("a", first, None)
    second = await repository.get("a")
    assert await repository.replace("a", second, None)
    assert await repository.get("a") is None
    assert not await repository.replace("a", second, stored("a"))
    assert await repository.get("a") is None


async def test_of_many_who_change_at_once_one_wins(repository: RedisClientRepository) -> None:
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
    one, other = (RedisClientRepository(redis, prefix=f"{key_prefix}{n}") for n in (1, 2))
    await put(one, stored("a"))
    assert dict(await other.all()) == {}
    assert await redis.hkeys(f"{key_prefix}1:v1:clients") == [b"a"]


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
    repository: RedisClientRepository,
    key_prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With an error in the log each time it is read."""
    found = await put(repository, stored("a"))
    await redis.hset(f"{key_prefix}:v1:clients", "b", written)
    assert dict(await repository.all()) == {"a": found}
    assert await repository.get("b") is None
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == (2 if written else 1)


async def test_a_key_of_another_type_is_said_as_the_store_being_away(
    redis: Redis, repository: RedisClientRepository, key_prefix: str
) -> None:
    """By all three ways of asking."""
    await redis.set(f"{key_prefix}:v1:clients", "text")
    with pytest.raises(StoreUnavailable):
        await repository.all()
    with pytest.raises(StoreUnavailable):
        await repository.get("a")
    with pytest.raises(StoreUnavailable):
        await repository.replace("a", None, stored("a"))
