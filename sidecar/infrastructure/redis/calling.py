"""Commands and scripts, sent to whoever has their keys, and nothing charged twice.

What may be tried again, while somebody still waits for the answer: what failed before a byte was written, and
what the server refused without doing anything. Everything else may have been counted: a call whose reply is
lost fails. The library's own `evalsha` cannot tell these apart, so connections are taken from its pools and
spoken to here.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from sidecar.infrastructure.redis.cluster import Cluster
from sidecar.infrastructure.redis.wire import bulk, bulks, command

#: Nothing was done: another attempt, soon, may find another server or this one in a better state.
AGAIN = (ReadOnlyError, BusyLoadingError, ClusterDownError, MasterDownError, TryAgainError)
#: How Redis 6.2 says it of a script's first write.
_READONLY = ": -READONLY "
PAUSE_SECONDS = 0.01
#: So often one call follows servers that name another one.
REDIRECTS = 16

#: A command: its words, or its bytes.
Words = tuple[str | int, ...] | bytes
Wanted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a script is given, as bytes: `keys` of them are keys, which come first; `words` are all."""

    keys: int
    words: int
    parts: Sequence[bytes]

    @classmethod
    def of(cls, keys: Sequence[str], arguments: Sequence[str | int]) -> "Arguments":
        return cls(len(keys), len(keys) + len(arguments), [bulks(keys), bulks(arguments)])


class Script:
    """A script's text and digest; each call is `EVALSHA`, and `EVAL` where the server does not know it."""

    def __init__(self, source: str) -> None:
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._by_digest = bulks(("EVALSHA", digest))
        self._whole = bulks(("EVAL", source))

    def by_digest(self, given: Arguments) -> bytes:
        return command(3 + given.words, (self._by_digest, bulk(given.keys), *given.parts))

    def whole(self, given: Arguments) -> bytes:
        return command(3 + given.words, (self._whole, bulk(given.keys), *given.parts))


class Servers(Protocol):
    """Who has which keys; `slot` is `None` where slots mean nothing."""

    def name(self, slot: int | None) -> str:
        """Of whoever has the slot, as far as is known."""

    async def pool(self, slot: int | None) -> ConnectionPool:
        """Connections to whoever has it. Raises redis-py's errors."""

    async def servers(self) -> list[Redis]:
        """All that have keys."""

    def failed(self) -> None:
        """Told that a call found nobody, or somebody who is not in charge."""

    def redirected(self, error: AskError | MovedError, sender: Any) -> ConnectionPool | None:
        """Where the answer of `sender` leads, for this call only; `None`: ask for the slot's pool again."""


class OneServer:
    """One server, or the primary that sentinels name."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def name(self, slot: int | None) -> str:
        return ""

    async def pool(self, slot: int | None) -> ConnectionPool:
        return self._redis.connection_pool

    async def servers(self) -> list[Redis]:
        return [self._redis]

    def failed(self) -> None:
        pass

    def redirected(self, error: AskError | MovedError, sender: Any) -> ConnectionPool | None:
        raise error  # a server of a cluster, asked as if it were alone


class Caller:
    """Runs scripts and commands whose keys are all of one slot. Raises what redis-py raises.

    `wanted` says whether to go on trying.
    """

    def __init__(self, store: Redis | Cluster) -> None:
        self._has_slots = isinstance(store, Cluster)
        self._servers: Servers = store if isinstance(store, Cluster) else OneServer(store)

    def slot(self, tag: str) -> int | None:
        """Of the keys with this hash tag."""
        return _slot(tag) if self._has_slots else None

    def node(self, slot: int | None) -> str:
        return self._servers.name(slot)

    async def call(
        self,
        script: Script,
        slot: int | None,
        given: Arguments,
        wanted: Wanted = lambda: False,
    ) -> Any:
        try:
            return await self._answered(slot, script.by_digest(given), wanted)
        except NoScriptError:
            return await self._answered(slot, script.whole(given), wanted)

    async def ask(self, slot: int | None, *words: str | int) -> Any:
        """One command. Only how often it is sent is seen to: it may be one that looks."""
        return await self._answered(slot, words, lambda: False)

    async def everywhere(self, *words: str) -> list[Any]:
        """One command without keys, to each server that has some; what they answer."""
        try:
            return [await _asked(server, words) for server in await self._servers.servers()]
        except (RedisError, OSError) as error:
            if not isinstance(error, ResponseError):
                self._servers.failed()
            raise

    async def subscription(self, slot: int | None) -> PubSub:
        """On whoever has the slot; what is published on one server of a cluster is heard on all."""
        return Redis(connection_pool=await self._servers.pool(slot)).pubsub(ignore_subscribe_messages=True)

    async def _answered(self, slot: int | None, words: Words, wanted: Wanted) -> Any:
        asking: ConnectionPool | None = None
        redirects = 0
        while True:
            try:
                pool = asking or await self._servers.pool(slot)
                connection: Any = await pool.get_connection()  # type: ignore[no-untyped-call]
            except (RedisError, OSError):
                asking = None
                self._servers.failed()
                await _pause_if(wanted)
                continue
            try:
                return await _spoken(connection, words, asking=asking is not None)
            except (AskError, MovedError) as error:
                redirects += 1
                if redirects > REDIRECTS:
                    raise
                asking = self._servers.redirected(error, connection)
            except (RedisError, OSError) as error:
                asking = None
                if not await self._did_nothing(connection, error):
                    raise
                await _pause_if(wanted)
            finally:
                await pool.release(connection)

    async def _did_nothing(self, connection: Any, error: Exception) -> bool:
        """Whether it is certain that the server did not; sees to it that another attempt may go elsewhere."""
        is_replica = isinstance(error, ReadOnlyError) or _READONLY in str(error)
        if is_replica:
            await connection.disconnect()  # a name may lead to another primary now
        did_nothing = is_replica or isinstance(error, AGAIN)
        if (did_nothing or not isinstance(error, ResponseError)) and not isinstance(error, TryAgainError):
            self._servers.failed()
        return did_nothing


async def _spoken(connection: Any, words: Words, *, asking: bool) -> Any:
    if asking:  # on the same connection: it is about the next command only
        await connection.send_command("ASKING")
        await connection.read_response()
    if isinstance(words, bytes):
        await connection.send_packed_command(words)
    else:
        await connection.send_command(*words)
    return await connection.read_response()


async def _asked(server: Redis, words: Sequence[str]) -> Any:
    pool = server.connection_pool
    connection: Any = await pool.get_connection()  # type: ignore[no-untyped-call]
    try:
        return await _spoken(connection, tuple(words), asking=False)
    finally:
        await pool.release(connection)


async def _pause_if(wanted: Wanted) -> None:
    """A moment before the next attempt; where nobody waits for it, the error under way goes on."""
    if not wanted():
        raise  # noqa: PLE0704 - called in an except clause
    await asyncio.sleep(PAUSE_SECONDS)


@lru_cache(maxsize=65_536)
def _slot(tag: str) -> int:
    return key_slot(tag.encode("utf-8", "surrogateescape"))
