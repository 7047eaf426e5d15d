"""A cluster's and sentinels' worst days under load: who takes over, what is lost, and nothing counted twice.

What is asserted is counts. `admitted` are those that the store said may pass, `undecided` those that it did
not answer, which may have been charged or not: what is charged is never more than both.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import BusyLoadingError, RedisError

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.infrastructure.redis.batching import MAX_TURNS
from sidecar.infrastructure.redis.calling import REDIRECTS
from sidecar.infrastructure.redis.connection import Store
from sidecar.infrastructure.redis.control import RedisControlStore
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.asking import PATIENCE_SECONDS, Asking
from tests.integration.redis.counting import check, connected, rule, store_on, used
from tests.parts import StoreServer, require, until
from tests.tcp_proxy import TcpProxy
from tests.topologies import ClusterServers, SentinelServers, ask, identity, myself

#: A deadline that a store in good order keeps also on a busy machine.
DEADLINE_SECONDS = 1.0
LIMIT = 200
LIMITED = [check(rule(Algorithm.FIXED_WINDOW, LIMIT, 31_536_000, name=name)) for name in "ab"]
ENDLESS = [check(rule(Algorithm.SLIDING_WINDOW_COUNTER, 1_000_000, 86_400, name=name)) for name in "ab"]


@pytest.fixture(scope="module")
def cluster(valkey_binary: Path) -> Iterator[ClusterServers]:
    with ClusterServers(valkey_binary) as servers:
        yield servers


@pytest.fixture(scope="module")
def sentinel(valkey_binary: Path) -> Iterator[SentinelServers]:
    with SentinelServers(valkey_binary) as servers:
        yield servers


@pytest.fixture
async def clustered(cluster: ClusterServers, key_prefix: str) -> AsyncIterator[RedisCounterStore]:
    """With a patience that no fault outlasts."""
    async with connected(cluster.url, DEADLINE_SECONDS) as redis:
        yield store_on(redis, key_prefix)


def errors(server: StoreServer, name: str) -> int:
    """How often it has answered with this error."""
    found = ask(server, "INFO", "errorstats").get(f"errorstat_{name}")
    return int(found["count"]) if found else 0


async def test_a_slot_that_moves_under_load_admits_exactly_the_limit(
    cluster: ClusterServers, clustered: RedisCounterStore, valkey_binary: Path
) -> None:
    """To a server that had none, key by key: half moved, wholly moved, and given away."""
    source, slot = cluster.primary_of("moving"), key_slot(b"moving")
    with cluster.joined(valkey_binary) as target:
        async with Asking(clustered, LIMITED, ["moving"], at_once=8) as asking:
            await asking.more(20)
            ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", identity(source))
            ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", identity(target))
            keys = ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10)
            move(source, target, keys[0])
            await until(lambda: errors(source, "TRYAGAIN") > 0, "half of the keys are here, half are there")
            for key in keys[1:]:
                move(source, target, key)
            await asking.more(20)
            assert errors(source, "ASK") > 0
            cluster.give("moving", target)
            await asking.more(2 * LIMIT)
            assert errors(source, "MOVED") > 0
        assert asking.undecided.total() == 0
        assert (asking.admitted["moving"], await asking.used("moving")) == (LIMIT, LIMIT)
        for key in ask(target, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            ask(source, "CLUSTER", "SETSLOT", slot, "IMPORTING", identity(target))
            ask(target, "CLUSTER", "SETSLOT", slot, "MIGRATING", identity(source))
            move(target, source, key)
        cluster.give("moving", source)
        assert await asking.used("moving") == LIMIT


def move(source: StoreServer, target: StoreServer, key: bytes) -> None:
    ask(source, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)


async def test_servers_that_name_each_other_are_asked_until_they_agree(
    cluster: ClusterServers, clustered: RedisCounterStore
) -> None:
    """Whoever has given a slot away says so before the other one knows."""
    source, slot = cluster.primary_of("disputed"), key_slot(b"disputed")
    target = next(one for one in cluster.servers if one is not source and "master" in myself(one))
    ask(source, "CLUSTER", "SETSLOT", slot, "NODE", identity(target))
    before = errors(source, "MOVED") + errors(target, "MOVED")
    asked = clustered.hit([replace(one, client_id="disputed") for one in LIMITED])
    await until(
        lambda: asked.done() or errors(source, "MOVED") + errors(target, "MOVED") > before + REDIRECTS + 2,
        "it is sent from one to the other",
    )
    cluster.give("disputed", target)
    assert used(await asked) == [1, 1]


async def test_a_failover_that_is_asked_for_loses_nothing(
    cluster: ClusterServers, clustered: RedisCounterStore
) -> None:
    """The primary hands over what it has: exactly the limit is admitted, and no request is undecided."""
    replica = cluster.replica_of(cluster.primary_of("handed"))
    async with Asking(clustered, LIMITED, ["handed"], at_once=8) as asking:
        await asking.more(20)
        ask(replica, "CLUSTER", "FAILOVER")
        await until(lambda: cluster.agree("handed", replica), "the replica has taken over", seconds=30)
        await asking.more(2 * LIMIT)
    assert asking.undecided.total() == 0
    assert (asking.admitted["handed"], await asking.used("handed")) == (LIMIT, LIMIT)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=lambda fault: fault.name)
async def test_a_primary_that_dies_takes_only_its_own_down_until_its_replica_takes_over(
    fault: signal.Signals, cluster: ClusterServers, key_prefix: str
) -> None:
    """Killed, or silent: clients of other servers notice nothing."""
    clients = one_client_of_each_server(cluster)
    victim = cluster.primary_of(clients[0])
    async with connected(cluster.url, DEADLINE_SECONDS) as redis:
        counters = RedisCounterStore(redis, prefix=key_prefix, timeout_seconds=DEADLINE_SECONDS)
        async with Asking(counters, ENDLESS, clients) as asking:
            await asking.more(20)
            os.kill(victim.pid, fault)
            await until(
                lambda: cluster.primary_of(clients[0], without=victim) is not victim,
                "its replica takes over",
                seconds=30,
            )
            await asking.more(100)
            assert (asking.undecided[clients[1]], asking.undecided[clients[2]]) == (0, 0), asking.reasons
            restore(victim, fault)
            await until(cluster.is_complete, "it is back", seconds=30)
            await asking.more(100)
        for client in clients:
            charged = await asking.used(client)
            assert charged <= asking.admitted[client] + asking.undecided[client]
            print(f"{fault.name} {client}: {asking.admitted[client]} admitted, {charged} charged,"
                  f" {asking.undecided[client]} undecided {dict(asking.reasons)}")  # fmt: skip
        assert await asking.used(clients[1]) == asking.admitted[clients[1]]
        assert all(connections(server) <= MAX_TURNS + 2 for server in cluster.servers)


def one_client_of_each_server(cluster: ClusterServers) -> list[str]:
    first = {cluster.primary_of(client).port: client for client in "abcdefghijklmnopqrstuvwxyz"}
    assert len(first) == 3
    return list(first.values())


def restore(server: StoreServer, fault: signal.Signals) -> None:
    if fault == signal.SIGSTOP:
        os.kill(server.pid, signal.SIGCONT)
    else:
        server.stop()
        server.start()


def connections(server: StoreServer) -> int:
    """Of clients, by TCP."""
    return str(ask(server, "CLIENT", "LIST", "TYPE", "normal")).count(" laddr=127.0.0.1:")


async def test_a_killed_primary_of_sentinels_is_followed_by_another(
    sentinel: SentinelServers, key_prefix: str
) -> None:
    """Requests are undecided meanwhile, then counted there; the old one may come back."""
    victim = sentinel.current()
    async with connected(sentinel.url, DEADLINE_SECONDS) as redis:
        counters = RedisCounterStore(redis, prefix=key_prefix, timeout_seconds=DEADLINE_SECONDS)
        async with Asking(counters, ENDLESS, ["c"]) as asking:
            await asking.more(20)
            victim.stop()
            await until(lambda: sentinel.current() is not victim, "another is the primary", seconds=30)
            await asking.more(100)
            victim.start()
            await asking.more(100)  # on the other, though this one takes itself for a primary at first
            ask(victim, "REPLICAOF", "127.0.0.1", sentinel.current().port)  # sentinels take ten seconds
        charged = await asking.used("c")
        assert asking.undecided["c"] > 0
        assert charged <= asking.admitted["c"] + asking.undecided["c"]
        print(f"sentinel killed: {asking.admitted['c']} admitted, {charged} charged, {dict(asking.reasons)}")


async def test_a_sentinel_that_hangs_holds_up_no_decision(sentinel: SentinelServers, key_prefix: str) -> None:
    """A host that is gone says nothing, not even that: the other sentinels are asked within the deadline."""
    hanging = sentinel.sentinels[0]
    os.kill(hanging.pid, signal.SIGSTOP)
    try:
        async with connected(sentinel.url, DEADLINE_SECONDS) as redis:
            counters = RedisCounterStore(redis, prefix=key_prefix, timeout_seconds=DEADLINE_SECONDS)
            assert (await counters.hit(ENDLESS)).admitted
    finally:
        os.kill(hanging.pid, signal.SIGCONT)


async def test_no_sentinel_is_lost_where_many_ask_at_once(sentinel: SentinelServers) -> None:
    """Each is there to be asked later, however many connections were opened together."""
    async with connected(sentinel.url, PATIENCE_SECONDS) as redis:
        assert isinstance(redis, Redis)
        manager: Any = redis.connection_pool.sentinel_manager  # type: ignore[attr-defined]
        for number in range(3):
            # One that was stopped takes the primary for dead until it has heard of it again.
            await until(sentinel.is_complete, "each sentinel sees that all is well", seconds=30)
            manager.sentinels.sort(key=lambda one: one.connection_pool.connection_kwargs["port"])
            away = sentinel.sentinels[number]
            os.kill(away.pid, signal.SIGSTOP)
            try:
                await asyncio.gather(*(manager.discover_master("main") for _ in range(8)))
            finally:
                os.kill(away.pid, signal.SIGCONT)
        ports = {one.connection_pool.connection_kwargs["port"] for one in manager.sentinels}
        assert ports == {one.port for one in sentinel.sentinels}


async def test_a_primary_that_sentinels_exchange_is_left_for_the_new_one(
    sentinel: SentinelServers, key_prefix: str
) -> None:
    """Whatever is said on the open connections to the old one, requests come to the new one in time."""
    await until(sentinel.is_complete, "the sentinels have all servers", seconds=30)
    old = sentinel.current()
    async with connected(sentinel.url, PATIENCE_SECONDS) as redis:
        async with Asking(store_on(redis, key_prefix), LIMITED, ["c"]) as asking:
            await asking.more(20)
            ask(sentinel.sentinels[0], "SENTINEL", "FAILOVER", "main")
            await until(lambda: sentinel.current() is not old, "another is the primary", seconds=30)
            await asking.more(2 * LIMIT)
        assert asking.admitted["c"] >= LIMIT
        assert await asking.used("c") == LIMIT
        print(f"SENTINEL FAILOVER: {asking.admitted['c']} admitted, {dict(asking.reasons)}")


@pytest.mark.parametrize("part", ["valkey", "redis", "redis 6.2"])
async def test_open_connections_to_what_became_a_replica_are_left(part: str, key_prefix: str) -> None:
    """READONLY says that nothing was counted: the call goes to whoever the name leads to now."""
    with StoreServer(require(part), tcp=True) as old, StoreServer(require(part), tcp=True) as new:
        async with TcpProxy(old.port) as name, connected(name.url, PATIENCE_SECONDS) as redis:
            counters = store_on(redis, key_prefix)
            async with Asking(counters, LIMITED, ["c"]) as asking:
                await asking.more(20)
                before = refused_scripts(old)
                ask(old, "REPLICAOF", "127.0.0.1", 1)
                await until(lambda: refused_scripts(old) > before, "it refuses to be written")
                name.target_port = new.port
                await asking.more(2 * LIMIT)
            assert asking.undecided.total() == 0
            assert await asking.used("c") == LIMIT
            assert asking.admitted["c"] > LIMIT  # what the old one has counted it keeps to itself


def refused_scripts(server: StoreServer) -> int:
    counted = ask(server, "INFO", "commandstats")["cmdstat_evalsha"]
    return int(counted["failed_calls"]) + int(counted["rejected_calls"])


@pytest.mark.parametrize("way", ["one", "cluster", "sentinel"])
async def test_flushed_scripts_are_sent_again(
    way: str, cluster: ClusterServers, sentinel: SentinelServers, valkey_binary: Path, key_prefix: str
) -> None:
    """Again and again under load: exactly the limit is admitted."""
    with ExitStack() as stack:
        if way == "one":
            one = stack.enter_context(StoreServer(valkey_binary))
            url, servers = one.url, [one]
        else:
            several = cluster if way == "cluster" else sentinel
            url, servers = several.url, list(several.servers)
        async with (
            connected(url, DEADLINE_SECONDS) as redis,
            Asking(store_on(redis, key_prefix), LIMITED, ["c", "d"], at_once=8) as asking,
        ):
            for _ in range(20):
                for server in servers:
                    ask(server, "SCRIPT", "FLUSH")
                await asking.more(20)
        assert asking.undecided.total() == 0
        assert asking.admitted == {"c": LIMIT, "d": LIMIT}


async def test_a_server_that_loads_its_data_is_waited_for(valkey_binary: Path, key_prefix: str) -> None:
    """Within the deadline: nobody is undecided, and what was counted before it counts on."""
    slow = {"key-load-delay": "500", "loading-process-events-interval-bytes": "1024"}
    with StoreServer(valkey_binary, tcp=True, settings=slow) as server:
        async with connected(server.url, PATIENCE_SECONDS) as redis:
            async with Asking(store_on(redis, key_prefix), LIMITED, ["c"]) as asking:
                await asking.more(20)
            ask(server, "EVAL", "for i = 1, 2000 do redis.call('SET', 'k' .. i, i) end", 0)
            ask(server, "SAVE")
            before = asking.admitted["c"]
            assert before == await asking.used("c")
            server.stop()
            starting = asyncio.create_task(asyncio.to_thread(server.start, seconds=PATIENCE_SECONDS))
            await until(lambda: says_loading(server), "it loads")
            async with Asking(store_on(redis, key_prefix), LIMITED, ["c"]) as again:
                await again.more(LIMIT)
            await starting
    assert again.undecided.total() == 0
    assert before + again.admitted["c"] == LIMIT


def says_loading(server: StoreServer) -> bool:
    try:
        ask(server, "GET", "x")
    except BusyLoadingError:
        return True
    except RedisError:
        pass
    return False


@pytest.mark.parametrize("way", ["cluster", "sentinel"])
async def test_a_lost_reply_is_one_charge_and_never_a_second(
    way: str, sentinel: SentinelServers, valkey_binary: Path, key_prefix: str
) -> None:
    """Nobody sends again what was written: not the cluster's client, and not that of sentinels."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy(0))
        if way == "cluster":
            server = stack.enter_context(cluster_of_one_behind(proxy, valkey_binary))
            redis = await stack.enter_async_context(connected(f"redis+cluster://127.0.0.1:{proxy.port}"))
        else:
            server = sentinel.current()
            redis = await stack.enter_async_context(connected(sentinel.url))
            lead_through(proxy, redis)
        proxy.target_port = server.port
        counters = store_on(redis, key_prefix)
        assert used(await counters.hit(LIMITED)) == [1, 1]
        for number in (2, 3):
            proxy.drop_replies()
            with pytest.raises(StoreUnavailable):
                await counters.hit(LIMITED)
            proxy.pass_replies()
            assert used(await counters.hit(LIMITED, charge=False)) == [number, number]


@contextmanager
def cluster_of_one_behind(proxy: TcpProxy, binary: Path) -> Iterator[StoreServer]:
    """It tells others to come through the proxy."""
    announced = {"cluster-announce-port": str(proxy.port), "cluster-announce-ip": "127.0.0.1"}
    with ClusterServers(binary, primaries=1, replicas=0, settings=announced) as servers:
        yield servers.servers[0]


def lead_through(proxy: TcpProxy, redis: Store) -> None:
    """As if the sentinels named the proxy."""
    assert isinstance(redis, Redis)

    async def named(_service: str) -> tuple[str, int]:
        return "127.0.0.1", proxy.port

    pool: Any = redis.connection_pool
    pool.sentinel_manager.discover_master = named


async def test_a_cluster_that_is_wholly_away_is_away_and_then_is_there(
    valkey_binary: Path, key_prefix: str
) -> None:
    """For decisions, for what the API keeps, and for announcements, from the first moment on."""
    servers = ClusterServers(valkey_binary, replicas=0)
    try:
        async with connected(servers.url, DEADLINE_SECONDS) as redis:
            counters = RedisCounterStore(redis, prefix=key_prefix, timeout_seconds=DEADLINE_SECONDS)
            control = RedisControlStore(redis, prefix=key_prefix)
            for asked in (counters.hit(LIMITED), control.load(), anext(aiter(control.announcements()))):
                with pytest.raises(StoreUnavailable):
                    await asked
            async with Asking(counters, LIMITED, ["c", "d", "e"]) as asking:
                await until(lambda: asking.reasons["breaker"] > 0, "nobody waits for it any more")
                await asyncio.to_thread(servers.start)
                await asking.more(LIMIT)
            assert (await control.load()).version == ""
            for client in "cde":
                assert asking.admitted[client] == await asking.used(client)
            for server in servers.servers:
                server.stop()
                server.start()
            async with Asking(counters, LIMITED, ["c", "d", "e"]) as asking:
                await asking.more(2 * LIMIT)
    finally:
        servers.remove()
