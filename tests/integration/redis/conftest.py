"""Stores to count on: the model, a real Valkey and a real Redis, with a clock that tests set."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from redis.asyncio import Redis

from sidecar.infrastructure.redis.connection import connect_to_one
from tests.integration.redis.counting import PATIENCE_SECONDS, Clock, Counts, MemoryStore, undying_store
from tests.parts import StoreServer, require
from tests.topologies import ClusterServers


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def url_of() -> Iterator[Callable[[str], str]]:
    """The address of the one `valkey`, `redis`, … of the session, started when first asked for."""
    with ExitStack() as stack:

        @cache
        def address(part: str) -> str:
            if part == "cluster":
                return stack.enter_context(ClusterServers(require("valkey"), replicas=0)).url
            return stack.enter_context(StoreServer(require(part))).url

        yield address


@pytest.fixture(params=["memory", "valkey", "redis", "redis 6.2", "cluster"])
async def counters(
    request: pytest.FixtureRequest, url_of: Callable[[str], str], clock: Clock, key_prefix: str
) -> AsyncIterator[Counts]:
    """Everything that decides; the test runs once on each."""
    if request.param == "memory":
        yield MemoryStore(clock)
        return
    async with undying_store(url_of(request.param), key_prefix, clock) as store:
        yield store


@pytest.fixture
async def redis(store_url: str) -> AsyncIterator[Redis]:
    """A client as the product makes it, on a Valkey and on a Redis."""
    async with connect_to_one(store_url, PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> Path:
    """The program of a server."""
    return require(request.param)


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    """A server of the test's own, to be stopped and changed."""
    with StoreServer(require(request.param)) as own:
        yield own
