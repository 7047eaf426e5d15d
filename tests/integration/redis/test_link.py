"""The connection that calls share: what ends it for some of them does not end it for the others."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.application.breaker import FAILURES
from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.infrastructure.redis.connection import connect_to_one
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import PATIENCE_SECONDS, check, rule, store_on, used
from tests.parts import StoreServer, until
from tests.tcp_proxy import TcpProxy
from tests.topologies import ask

COUNTED = [check(rule(Algorithm.FIXED_WINDOW, 10, 3600))]


@pytest.fixture
def server(valkey_binary: Path) -> Iterator[StoreServer]:
    with StoreServer(valkey_binary, tcp=True) as own:
        yield own


async def test_who_leaves_a_replica_leaves_the_others_their_answers(server: StoreServer) -> None:
    """The first hears that it is one, and asks again; the second hears so only then, and does too."""
    async with TcpProxy(server.port) as proxy, connect_to_one(proxy.url, PATIENCE_SECONDS) as redis:
        store = store_on(redis, "t")
        await store.hit(COUNTED)
        ask(server, "REPLICAOF", "127.0.0.1", "1")
        proxy.hold_replies()
        first = store.hit(COUNTED)
        await until(lambda: proxy.kept_back == 1, "the first is answered")
        second = store.hit(COUNTED)
        await until(lambda: refusals(server) == 2, "the second is, too")
        ask(server, "REPLICAOF", "NO", "ONE")
        proxy.pass_replies()
        proxy.slow_replies(0.01)  # so that they come one by one
        assert sorted([used(await first), used(await second)]) == [[2], [3]]
        assert proxy.accepted == 2


def refusals(server: StoreServer) -> int:
    found = ask(server, "INFO", "errorstats").get("errorstat_READONLY")
    return int(found["count"]) if found else 0


async def test_what_nobody_asked_for_is_no_answer() -> None:
    """A push ends the connection: what follows it would be taken for the answer to another call."""

    async def push(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b">2\r\n+invalidate\r\n+x\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(push, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect_to_one(f"redis://127.0.0.1:{port}", PATIENCE_SECONDS) as redis:
            with pytest.raises(StoreUnavailable, match="the connection ended"):
                await store_on(redis, "t").hit(COUNTED)


async def test_who_is_done_with_a_store_that_is_away_leaves_nobody_asking(server: StoreServer) -> None:
    """Neither whether it is back, nor for a connection, which nobody would close any more."""
    async with connect_to_one(server.url, PATIENCE_SECONDS) as redis:
        store = RedisCounterStore(redis, prefix="t", timeout_seconds=0.05)
        server.stop()
        for _ in range(FAILURES):
            with pytest.raises(StoreUnavailable):
                await store.hit(COUNTED)
        probing = {task.get_name() for task in asyncio.all_tasks()}
        await store.aclose()
        server.start()
        with pytest.raises(StoreUnavailable):
            await store.hit(COUNTED)
        assert "store probe" in probing
        assert len(asyncio.all_tasks()) == 1
        assert ask(server, "INFO", "stats")["total_connections_received"] <= 2  # those of the test itself
