"""What lies between the store and its server: lost and late replies, deadlines, restarts, cancellation."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted
from sidecar.infrastructure.redis.connection import MAX_CONNECTIONS, connect
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.integration.redis.counting import PATIENCE_SECONDS, check, rule, store_on, used
from tests.parts import StoreServer, require, until
from tests.tcp_proxy import TcpProxy

#: A deadline that is certain to pass while a reply is held.
SHORT_SECONDS = 0.05


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with StoreServer(require(request.param), tcp=True) as own:
        yield own


@pytest.fixture
async def proxy(server: StoreServer) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def redis(proxy: TcpProxy) -> AsyncIterator[Redis]:
    """Through the proxy, patient itself: the deadlines here are those of the stores."""
    async with connect(proxy.url, PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture
async def direct(server: StoreServer) -> AsyncIterator[RedisCounterStore]:
    """Past the proxy."""
    async with connect(server.url, PATIENCE_SECONDS) as client:
        yield store_on(client, "t")


@pytest.fixture
def store(redis: Redis) -> RedisCounterStore:
    return store_on(redis, "t")


@pytest.fixture
def hasty(redis: Redis) -> RedisCounterStore:
    """On the same connections as `store`, with a deadline that passes soon."""
    return RedisCounterStore(redis, prefix="t", timeout_seconds=SHORT_SECONDS)


def counter(name: str = "r", cost: int = 1, limit: int = 1000) -> Check:
    return check(rule(Algorithm.SLIDING_WINDOW, limit, 3600, name=name), cost)


async def count_of(store: RedisCounterStore, counted: Check) -> int:
    return used(await store.hit([counted], charge=False))[0]


async def test_a_lost_reply_is_one_charge_and_never_a_second(
    proxy: TcpProxy, store: RedisCounterStore, direct: RedisCounterStore
) -> None:
    """The server has run the script, then the connection ends: said as such, and not sent again."""
    assert used(await store.hit([counter()])) == [1]
    proxy.drop_replies()
    for charged in (2, 3):
        with pytest.raises(StoreUnavailable):
            await store.hit([counter()])
        assert await count_of(direct, counter()) == charged
    proxy.pass_replies()
    assert used(await store.hit([counter()])) == [4]


async def test_a_lost_reply_to_the_script_itself_is_no_second_charge(
    proxy: TcpProxy, store: RedisCounterStore, server: StoreServer, direct: RedisCounterStore
) -> None:
    """Sent whole because the server did not know it, it is not sent again either."""
    proxy.drop_replies(after=1)
    with pytest.raises(StoreUnavailable):
        await store.hit([counter()])
    async with connect(server.url, PATIENCE_SECONDS) as client:
        commands = await client.info("commandstats")
    assert (commands["cmdstat_evalsha"]["calls"], commands["cmdstat_eval"]["calls"]) == (1, 1)
    assert await count_of(direct, counter()) == 1


async def test_a_late_reply_reaches_no_other_caller(
    proxy: TcpProxy, store: RedisCounterStore, hasty: RedisCounterStore
) -> None:
    """A call that timed out closes its connection; each later answer is that caller's own."""
    await store.hit([counter("late", 500)])
    proxy.hold_replies()
    with pytest.raises(StoreUnavailable):
        await hasty.hit([counter("late", 100)])
    await until(lambda: proxy.kept_back > 0, "the server has answered")
    await until(lambda: proxy.open == 0, "the connection is closed")
    proxy.pass_replies()
    for number in range(1, 40):
        assert used(await store.hit([counter(f"r{number}", number)])) == [number]
    assert await count_of(store, counter("late")) == 600


async def test_late_replies_of_many_callers_reach_no_other(
    proxy: TcpProxy, store: RedisCounterStore, hasty: RedisCounterStore
) -> None:
    """A pool of connections that all timed out is a pool of new ones."""
    proxy.hold_replies()
    calls = [hasty.hit([counter("late", 7)]) for _ in range(MAX_CONNECTIONS)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    await until(lambda: proxy.open == 0, "the connections are closed")
    proxy.pass_replies()
    answers = await asyncio.gather(*(store.hit([counter(f"r{n}", n)]) for n in range(1, 101)))
    assert [used(answer) for answer in answers] == [[n] for n in range(1, 101)]


async def test_a_listener_that_never_answers_is_given_up(proxy: TcpProxy, hasty: RedisCounterStore) -> None:
    """By a look, a charge and a ping."""
    proxy.hold_replies()
    for call in (hasty.hit([counter()]), hasty.hit([counter()], charge=False), hasty.ping()):
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(StoreUnavailable):
                await call


async def test_the_deadline_includes_connecting() -> None:
    """The listener's queue is full, so that connecting hangs; the client alone would wait much longer."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        async with connect(f"redis://127.0.0.1:{port}", PATIENCE_SECONDS * 10) as client:
            hasty = RedisCounterStore(client, prefix="t", timeout_seconds=SHORT_SECONDS)
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(StoreUnavailable):
                    await hasty.hit([counter()])


async def test_the_deadline_includes_waiting_for_a_connection(
    proxy: TcpProxy, store: RedisCounterStore, hasty: RedisCounterStore
) -> None:
    """All are busy: one more caller gives up, and disturbs nobody."""
    await store.ping()
    proxy.hold_replies()
    calls = [asyncio.create_task(store.hit([counter()])) for _ in range(MAX_CONNECTIONS)]
    await until(lambda: proxy.open == MAX_CONNECTIONS, "all connections are in use")
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StoreUnavailable):
            await hasty.hit([counter("late")])
    proxy.pass_replies()
    answers = await asyncio.gather(*calls)
    assert counts(answers) == list(range(1, MAX_CONNECTIONS + 1))
    assert await count_of(store, counter("late")) == 0


async def test_more_callers_than_connections_are_all_answered(
    proxy: TcpProxy, store: RedisCounterStore
) -> None:
    """A hundred at once on 64 connections."""
    proxy.hold_replies()
    calls = [asyncio.create_task(store.hit([counter()])) for _ in range(100)]
    await until(lambda: proxy.open == MAX_CONNECTIONS, "all connections are in use")
    proxy.pass_replies()
    assert counts(await asyncio.gather(*calls)) == list(range(1, 101))
    assert proxy.accepted == MAX_CONNECTIONS


async def test_cancelled_calls_leave_the_store_usable(proxy: TcpProxy, store: RedisCounterStore) -> None:
    """More than there are connections, some sent, some waiting: none is lost, no reply goes astray."""
    await store.hit([counter("cancelled")])
    for _ in range(3):
        proxy.hold_replies()
        calls = [asyncio.create_task(store.hit([counter("cancelled")])) for _ in range(100)]
        await until(lambda: proxy.kept_back == MAX_CONNECTIONS, "all that can be sent is answered")
        for call in calls:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.CancelledError}
        await until(lambda: proxy.open == 0, "the connections are closed")
        proxy.pass_replies()
    answers = await asyncio.gather(*(store.hit([counter(f"r{n}", n)]) for n in range(1, 101)))
    assert [used(answer) for answer in answers] == [[n] for n in range(1, 101)]
    assert await count_of(store, counter("cancelled")) == 1 + 3 * MAX_CONNECTIONS


async def test_cut_connections_are_made_anew(proxy: TcpProxy, store: RedisCounterStore) -> None:
    """Each call under way is charged once and not sent again; the next one connects anew."""
    await store.hit([counter()])
    proxy.hold_replies()
    calls = [asyncio.create_task(store.hit([counter()])) for _ in range(10)]
    await until(lambda: proxy.kept_back == 10, "the server has answered them all")
    proxy.cut()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    proxy.pass_replies()
    assert await count_of(store, counter()) == 11


async def test_a_killed_server_is_away_and_a_restarted_one_is_back(
    server: StoreServer, store: RedisCounterStore, proxy: TcpProxy
) -> None:
    """No more calls fail after its return than there were connections."""
    proxy.hold_replies()
    calls = [asyncio.create_task(store.hit([counter()])) for _ in range(8)]
    await until(lambda: proxy.open == 8, "eight connections are in use")
    proxy.pass_replies()
    await asyncio.gather(*calls)
    server.stop()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.hit([counter()])
    with pytest.raises(StoreUnavailable):
        await store.ping()
    server.start()
    results = [await outcome(store) for _ in range(50)]
    assert results.count(False) <= 8
    assert all(results[8:])


async def outcome(store: RedisCounterStore) -> bool:
    try:
        return (await store.hit([counter()])).admitted
    except StoreUnavailable:
        return False


def counts(answers: list[Counted]) -> list[int]:
    """What each answer says is used, in order: that of callers who came one after the other."""
    return sorted(number for answer in answers for number in used(answer))
