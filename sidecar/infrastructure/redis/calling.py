"""One script call, sent to whoever has its keys, and never charged twice.

What may be tried again, while somebody still waits for the answer: what failed before a byte was written, and
what the server refused without doing anything. Everything else may have been counted: a call whose reply is
lost fails. The library's own `evalsha` cannot tell these apart, so connections are taken from its pools and
spoken to here.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)

#: Nothing was done: another attempt, soon, may find another server or this one in a better state.
AGAIN = (ReadOnlyError, BusyLoadingError, ClusterDownError, MasterDownError, TryAgainError)
PAUSE_SECONDS = 0.01

Words = tuple[str | int, ...]


class Script:
    """A script's text and digest; each call is `EVALSHA`, and `EVAL` where the server does not know it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def by_digest(self, keys: Sequence[str], arguments: Sequence[str | int]) -> Words:
        return ("EVALSHA", self._digest, len(keys), *keys, *arguments)

    def whole(self, keys: Sequence[str], arguments: Sequence[str | int]) -> Words:
        return ("EVAL", self._source, len(keys), *keys, *arguments)


class Caller(Protocol):
    """Runs scripts. Keys of one call are all of one slot; `None` where slots mean nothing."""

    def slot(self, tag: str) -> int | None:
        """Of the keys with this hash tag."""

    def node(self, slot: int | None) -> str:
        """Names whoever has the slot, as far as is known."""

    async def call(
        self,
        script: Script,
        slot: int | None,
        keys: Sequence[str],
        arguments: Sequence[str | int],
        wanted: Callable[[], bool],
    ) -> Any:
        """The script's reply. Raises what redis-py raises; `wanted` says whether to go on trying."""


def caller_for(store: Redis | RedisCluster) -> Caller:
    return ClusterCaller(store) if isinstance(store, RedisCluster) else SingleCaller(store)


class SingleCaller:
    """One server, or the primary that sentinels name."""

    def __init__(self, redis: Redis) -> None:
        self._pool = redis.connection_pool

    def slot(self, tag: str) -> None:
        return None

    def node(self, slot: int | None) -> str:
        return ""

    async def call(
        self,
        script: Script,
        slot: int | None,
        keys: Sequence[str],
        arguments: Sequence[str | int],
        wanted: Callable[[], bool],
    ) -> Any:
        words = script.by_digest(keys, arguments)
        while True:
            try:
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
            except (RedisError, OSError):
                await _pause_if(wanted)
                continue
            try:
                await connection.send_command(*words)
                return await connection.read_response()
            except NoScriptError:
                words = script.whole(keys, arguments)
            except AGAIN as error:
                if isinstance(error, ReadOnlyError):
                    await connection.disconnect()  # a name may lead to another primary now
                await _pause_if(wanted)
            finally:
                await self._pool.release(connection)


class ClusterCaller:
    """The primaries of a cluster; learns where slots are from it."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._stale = False

    def slot(self, tag: str) -> int:
        return _slot(tag)

    def node(self, slot: int | None) -> str:
        owners = self._cluster.nodes_manager.slots_cache.get(slot or 0)
        return owners[0].name if owners else ""

    async def call(
        self,
        script: Script,
        slot: int | None,
        keys: Sequence[str],
        arguments: Sequence[str | int],
        wanted: Callable[[], bool],
    ) -> Any:
        words, asked = script.by_digest(keys, arguments), None
        while True:
            try:
                node = asked or await self._owner(slot or 0)
                connection = await self._connected(node)
            except (RedisError, RedisClusterException, OSError):
                self._stale, asked = True, None
                await _pause_if(wanted)
                continue
            try:
                return await self._answer(connection, words, asking=asked is not None)
            except NoScriptError:
                words = script.whole(keys, arguments)
            except (AskError, MovedError) as error:
                asked = await self._redirected(error)
            except AGAIN:
                asked, self._stale = None, True
                await _pause_if(wanted)
            except (RedisError, OSError):
                self._stale = True
                raise
            finally:
                node.release(connection)

    async def _answer(self, connection: Any, words: Words, *, asking: bool) -> Any:
        if asking:  # on the same connection: it is about the next command only
            await connection.send_command("ASKING")
            await connection.read_response()
        await connection.send_command(*words)
        return await connection.read_response()

    async def _owner(self, slot: int) -> Any:
        await self._cluster.initialize()
        if self._stale:
            self._stale = False
            await self._cluster.nodes_manager.initialize()
        return self._cluster.nodes_manager.get_node_from_slot(slot)

    async def _connected(self, node: Any) -> Any:
        """A connection that the server has not closed meanwhile."""
        connection = node.acquire_connection()
        try:
            await node.disconnect_if_needed(connection)
            await connection.connect()
            if await connection.can_read_destructive():
                await connection.disconnect()
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            node.release(connection)
            raise
        return connection

    async def _redirected(self, error: AskError | MovedError) -> Any:
        """The node that an ASK names; `None` after a MOVED, or where it has to be looked for first."""
        nodes = self._cluster.nodes_manager
        if isinstance(error, MovedError):
            if error.slot_id in nodes.slots_cache:
                await nodes.move_slot(error)
            else:
                self._stale = True
            return None
        node = nodes.get_node(host=error.host, port=error.port)
        self._stale = self._stale or node is None
        return node


async def _pause_if(wanted: Callable[[], bool]) -> None:
    """A moment before the next attempt; where nobody waits for it, the error under way goes on."""
    if not wanted():
        raise  # noqa: PLE0704 - called in an except clause
    await asyncio.sleep(PAUSE_SECONDS)


@lru_cache(maxsize=65_536)
def _slot(tag: str) -> int:
    return key_slot(tag.encode("utf-8", "surrogateescape"))
