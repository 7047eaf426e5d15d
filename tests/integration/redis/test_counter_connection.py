"""What lies between the store and its server: lost and late replies, deadlines, restarts, cancellation.

Requests of one turn of the event loop travel together, in a few calls at once and on one connection; none may
hear another's answer.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted
from sidecar.infrastructure.redis.batching import MAX_TURNS
from sidecar.infrastructure.redis.connection import connect_to_one
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
    async with connect_to_one(proxy.url, PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture
async def direct(server: StoreServer) -> AsyncIterator[RedisCounterStore]:
    """Past the proxy."""
    async with connect_to_one(server.url, PATIENCE_SECONDS) as client:
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
    async with connect_to_one(server.url, PATIENCE_SECONDS) as client:
        commands = await client.info("commandstats")
    assert (commands["cmdstat_evalsha"]["calls"], commands["cmdstat_eval"]["calls"]) == (1, 1)
    assert await count_of(direct, counter()) == 1


async def test_a_late_reply_reaches_no_other_caller(
    proxy: TcpProxy, store: RedisCounterStore, hasty: RedisCounterStore
) -> None:
    """A caller has given up, then its answer comes: each later answer is that caller's own."""
    await store.hit([counter("late", 500)])
    proxy.hold_replies()
    with pytest.raises(StoreUnavailable):
        await hasty.hit([counter("late", 100)])
    await until(lambda: proxy.kept_back == 1, "the server has answered")
    calls = [asyncio.ensure_future(store.hit([counter("r", 1)])) for _ in range(3)]
    await until(lambda: proxy.kept_back == 2, "the server has answered others")
    proxy.pass_replies()
    assert counts(await asyncio.gather(*calls)) == [1, 2, 3]
    for number in range(1, 40):
        assert used(await hasty_or(store, hasty, number)) == [number]
    assert await count_of(store, counter("late")) == 600


async def hasty_or(store: RedisCounterStore, hasty: RedisCounterStore, number: int) -> Counted:
    """Asked through the store that gave up, on a slow machine through the other: never another's answer."""
    asked = counter(f"n{number}", number)
    try:
        return await hasty.hit([asked])
    except StoreUnavailable:
        return await store.hit([asked], charge=False)


async def test_a_connection_that_never_answers_is_closed(proxy: TcpProxy) -> None:
    """After the client's own time, so that its late reply finds nobody; then there is a new one."""
    async with connect_to_one(proxy.url, SHORT_SECONDS) as client:
        store = store_on(client, "t")
        proxy.hold_replies()
        with pytest.raises(StoreUnavailable):
            await store.hit([counter()])
        await until(lambda: proxy.open == 0, "the connection is closed")
        proxy.pass_replies()
        await until(lambda: outcome(store), "it is made anew")


async def test_many_who_gave_up_leave_the_others_their_own_answers(
    proxy: TcpProxy, store: RedisCounterStore, hasty: RedisCounterStore
) -> None:
    """More requests than fit into the calls that may be under way."""
    proxy.hold_replies()
    asked = [hasty.hit([counter("late", 1)]) for _ in range(64 * MAX_TURNS + 10)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    proxy.pass_replies()
    answers = await asyncio.gather(*(store.hit([counter(f"r{n}", n)]) for n in range(1, 301)))
    assert [used(answer) for answer in answers] == [[n] for n in range(1, 301)]
    assert await count_of(store, counter("late")) <= 64 * MAX_TURNS


async def test_who_gives_up_before_its_turn_is_never_charged(
    proxy: TcpProxy, store: RedisCounterStore, hasty: RedisCounterStore
) -> None:
    """All calls that may be under way are: one more waits, and is not sent after its caller has gone."""
    await store.hit([counter("late")])
    proxy.hold_replies()
    full = [[counter(f"r{call}-{n}") for n in range(64)] for call in range(MAX_TURNS)]
    asked = [hasty.hit(checks) for checks in full] + [hasty.hit([counter("late")])]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    proxy.pass_replies()
    assert await count_of(store, counter("late")) == 1
    await until(lambda: outcome(hasty), "it answers again")
    assert await count_of(store, counter("late")) == 1


async def test_a_listener_that_never_answers_is_given_up(proxy: TcpProxy, hasty: RedisCounterStore) -> None:
    """By a charge and a look."""
    proxy.hold_replies()
    for charge in (True, False):
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(StoreUnavailable):
                await hasty.hit([counter()], charge=charge)


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
        async with connect_to_one(f"redis://127.0.0.1:{port}", PATIENCE_SECONDS * 10) as client:
            hasty = RedisCounterStore(client, prefix="t", timeout_seconds=SHORT_SECONDS)
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(StoreUnavailable):
                    await hasty.hit([counter()])


async def test_a_thousand_at_once_are_all_answered(proxy: TcpProxy, store: RedisCounterStore) -> None:
    """Each as if it had come alone, over one connection."""
    answers = await asyncio.gather(*(store.hit([counter()]) for _ in range(1000)))
    assert counts(answers) == list(range(1, 1001))
    assert proxy.accepted == 1


async def test_cancelled_callers_leave_the_store_usable(proxy: TcpProxy, store: RedisCounterStore) -> None:
    """Some sent, some waiting: the sent ones stay charged, the others never are, no answer goes astray."""
    sent = 64 * MAX_TURNS
    await store.hit([counter("cancelled")])
    for _ in range(3):
        proxy.hold_replies()
        calls = [asyncio.ensure_future(store.hit([counter("cancelled")])) for _ in range(sent + 50)]
        await until(lambda: proxy.kept_back == 1, "what can be sent at once is answered")
        for call in calls:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.CancelledError}
        proxy.pass_replies()
        await store.hit([counter("afterwards")])
    answers = await asyncio.gather(*(store.hit([counter(f"r{n}", n)]) for n in range(1, 101)))
    assert [used(answer) for answer in answers] == [[n] for n in range(1, 101)]
    assert await count_of(store, counter("cancelled", limit=1000)) == 1 + 3 * sent


async def test_a_caller_that_is_cancelled_takes_no_other_down(
    proxy: TcpProxy, store: RedisCounterStore
) -> None:
    """Those that travel with it are answered."""
    proxy.hold_replies()
    calls = [asyncio.ensure_future(store.hit([counter()])) for _ in range(10)]
    await until(lambda: proxy.kept_back == 1, "one call carries them all")
    calls[4].cancel()
    proxy.pass_replies()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results.pop(4), asyncio.CancelledError)
    assert counts([result for result in results if isinstance(result, Counted)]) == [
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        9,
        10,
    ]


async def test_cut_connections_are_made_anew(proxy: TcpProxy, store: RedisCounterStore) -> None:
    """Each request under way is charged once and not sent again; the next one connects anew."""
    await store.hit([counter()])
    proxy.hold_replies()
    calls = [asyncio.ensure_future(store.hit([counter()])) for _ in range(10)]
    await until(lambda: proxy.kept_back == 1, "the server has answered them all")
    proxy.cut()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    proxy.pass_replies()
    assert await count_of(store, counter()) == 11


async def test_a_killed_server_is_away_and_a_restarted_one_is_back(
    server: StoreServer, store: RedisCounterStore, proxy: TcpProxy
) -> None:
    """No more calls fail after its return than there were connections, which is one."""
    proxy.hold_replies()
    calls = [store.hit([counter(f"r{call}-{n}") for n in range(64)]) for call in range(MAX_TURNS)]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await until(lambda: proxy.kept_back == 1, "the connection is in use")
    proxy.pass_replies()
    await asyncio.gather(*tasks)
    server.stop()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.hit([counter()])
    server.start()
    results = [await outcome(store) for _ in range(50)]
    assert all(results[1:])


async def outcome(store: RedisCounterStore) -> bool:
    try:
        return (await store.hit([counter()])).admitted
    except StoreUnavailable:
        return False


def counts(answers: list[Counted]) -> list[int]:
    """What each answer says is used, in order: that of callers who came one after the other."""
    return sorted(number for answer in answers for number in used(answer))
