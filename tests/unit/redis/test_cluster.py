"""Who has which slots of a cluster: learnt from servers that may be silent, strange or gone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from sidecar.infrastructure.redis.cluster import Address, Cluster
from tests.parts import until

A, B, C = ("a", 1), ("b", 2), ("c", 3)
HALVES = [[0, 8191, [b"a", 1, b"id"], [b"c", 3, b"id"]], [8192, 16383, [b"b", 2, b"id"]]]


class Servers:
    """What each server says of the slots: a reply, an error, or nothing at all."""

    def __init__(self) -> None:
        self.says: dict[Address, Any] = {A: HALVES, B: HALVES, C: HALVES}
        self.asked: Counter[Address] = Counter()
        self.closed = 0

    def at(self, address: Address) -> Any:
        return Server(self, address)


class Server:
    """Stands for its own connections, too."""

    def __init__(self, servers: Servers, address: Address) -> None:
        self._servers = servers
        self.address = address
        self.host = address[0]
        self.connection_pool = self

    async def execute_command(self, *words: str) -> Any:
        assert words == ("CLUSTER", "SLOTS")
        self._servers.asked[self.address] += 1
        says = self._servers.says.get(self.address, RedisConnectionError("refused"))
        if says is None:
            await asyncio.Event().wait()
        if isinstance(says, Exception):
            raise says
        return says

    async def aclose(self) -> None:
        self._servers.closed += 1


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def cluster(servers: Servers) -> AsyncIterator[Cluster]:
    cluster = Cluster([A, B], servers.at)
    yield cluster
    await cluster.aclose()


async def owner(cluster: Cluster, slot: int) -> Address:
    pool: Any = await cluster.pool(slot)
    address: Address = pool.address
    return address


async def test_slots_are_learnt_when_they_are_first_needed(cluster: Cluster, servers: Servers) -> None:
    """From one server, once."""
    assert (cluster.name(0), servers.asked.total()) == ("", 0)
    owners = [await owner(cluster, slot) for slot in (0, 8191, 8192, 16383)]
    assert (owners, cluster.name(0)) == ([A, A, B, B], "a:1")
    assert servers.asked.total() == 1
    assert [server.address for server in await cluster.servers()] == [A, B]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "silent",
    [
        None,
        RedisConnectionError("no"),
        ResponseError("cluster support disabled"),
        [],
        "nonsense",
        [[1, 2]],
        [[0, 16384, [b"a", 1]]],
        [[b"0", 1, [b"a", 1]]],
    ],
)
async def test_a_server_that_does_not_say_is_not_waited_for(silent: Any, servers: Servers) -> None:
    """The next one is asked."""
    servers.says[A] = silent
    while servers.asked[A] < 3:  # by chance, the other is asked first
        cluster = Cluster([A, B], servers.at)
        assert await owner(cluster, 9000) == B
        await cluster.aclose()


async def test_nobody_who_says_is_an_error_that_names_the_last_reason(
    cluster: Cluster, servers: Servers
) -> None:
    """Until somebody does."""
    servers.says = {A: ResponseError("NOAUTH"), B: ResponseError("NOAUTH")}
    with pytest.raises(RedisConnectionError, match="who has the slot: ResponseError: NOAUTH"):
        await cluster.pool(0)
    servers.says[B] = HALVES
    assert await owner(cluster, 0) == A


async def test_a_slot_that_nobody_has_is_an_error_and_the_others_are_served(
    cluster: Cluster, servers: Servers
) -> None:
    """A part of a cluster is better than none."""
    servers.says = {A: HALVES[:1], B: HALVES[:1]}
    assert await owner(cluster, 1) == A
    with pytest.raises(RedisConnectionError):
        await cluster.pool(9000)


async def test_a_server_without_a_name_is_the_one_that_was_asked(cluster: Cluster, servers: Servers) -> None:
    """As it is in a cluster of one, and where names are not to be told."""
    servers.says = {A: [[0, 16383, [None, 7, b"id"]]], B: [[0, 16383, [b"", 7, b"id"]]]}
    host, port = await owner(cluster, 0)
    assert (host in "ab", port) == (True, 7)
    assert cluster.redirected(MovedError("3 :9"), Server(servers, ("b", 7))) is None
    assert cluster.name(3) == "b:9"


async def test_a_moved_slot_is_learnt_and_an_asked_one_is_not(cluster: Cluster, servers: Servers) -> None:
    """ASK is about one call, also to a server that nobody has named yet."""
    await cluster.pool(0)
    asked: Any = cluster.redirected(AskError("5 ::1:9"), Server(servers, A))
    assert (asked.address, cluster.name(5)) == (("::1", 9), "a:1")
    assert cluster.redirected(MovedError("5 d:4"), Server(servers, A)) is None
    assert (cluster.name(5), cluster.name(4)) == ("d:4", "a:1")


async def test_those_of_the_url_are_asked_again_when_all_that_were_learnt_are_gone(
    cluster: Cluster, servers: Servers
) -> None:
    """A cluster whose servers all have new addresses is found by its names."""
    servers.says = {A: [[0, 16383, [b"x", 1, b"id"]]]}
    assert await owner(cluster, 0) == ("x", 1)
    servers.says = {B: [[0, 16383, [b"y", 1, b"id"]]]}
    cluster.failed()
    await until(lambda: cluster.name(0) == "y:1", "it is found again")


async def test_many_who_find_something_changed_are_one_look(cluster: Cluster, servers: Servers) -> None:
    """And the next one is not at once."""
    await cluster.pool(0)
    for _ in range(100):
        cluster.failed()
        await asyncio.sleep(0)
    await until(lambda: servers.asked.total() == 2, "it has looked again")


async def test_the_end_closes_all_and_ends_a_look(servers: Servers) -> None:
    """Also one that waits for nobody."""
    cluster = Cluster([A, B], servers.at)
    servers.says = {A: None, B: None}
    cluster.failed()
    await until(lambda: servers.asked.total() == 2, "both are asked")
    await cluster.aclose()
    assert servers.closed == 2
