"""Commands and scripts, sent to whoever has their keys, and nothing charged twice.

What may be tried again, while somebody still waits for the answer: what failed before a byte was written, and
what the server refused without doing anything. Everything else may have been counted: a call whose reply is
lost fails. The library's own `evalsha` cannot tell these apart, so calls are made on a `Link`.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
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

from sidecar.application.tasks import end
from sidecar.infrastructure.redis.cluster import Cluster
from sidecar.infrastructure.redis.link import Link, Way
from sidecar.infrastructure.redis.pending import Then
from sidecar.infrastructure.redis.wire import bulk, bulks, command

#: Nothing was done: another attempt, soon, may find another server or this one in a better state.
AGAIN = (ReadOnlyError, BusyLoadingError, ClusterDownError, MasterDownError, TryAgainError)
#: How Redis 6.2 says it of a script's first write.
_READONLY = ": -READONLY "
PAUSE_SECONDS = 0.01
#: So often one call follows servers that name another one before it gives them a moment to agree.
REDIRECTS = 16

Wanted = Callable[[], bool]
#: Where a call was made in vain, and why.
Failed = tuple[Link, Exception]


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

    def known(self, slot: int | None) -> ConnectionPool | None:
        """Connections to whoever has it, as far as is known."""

    async def pool(self, slot: int | None) -> ConnectionPool:
        """The same, found out if need be. Raises redis-py's errors."""

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

    def known(self, slot: int | None) -> ConnectionPool:
        return self._redis.connection_pool

    async def pool(self, slot: int | None) -> ConnectionPool:
        return self._redis.connection_pool

    async def servers(self) -> list[Redis]:
        return [self._redis]

    def failed(self) -> None:
        pass

    def redirected(self, error: AskError | MovedError, sender: Any) -> ConnectionPool | None:
        raise error  # a server of a cluster, asked as if it were alone


def _once() -> bool:
    return False


class Caller:
    """Runs scripts and commands whose keys are all of one slot. Raises what redis-py raises.

    `wanted` says whether to go on trying.
    """

    def __init__(self, store: Redis | Cluster) -> None:
        self.has_slots = isinstance(store, Cluster)
        self._servers: Servers = store if isinstance(store, Cluster) else OneServer(store)
        self._ways: dict[ConnectionPool, Way] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Ends what goes on in the background: a connection that is made later would be closed by nobody."""
        for way in self._ways.values():
            await way.aclose()
        await end(*self._tasks)

    def slot(self, tag: str) -> int | None:
        """Of the keys with this hash tag."""
        return _slot(tag) if self.has_slots else None

    def node(self, slot: int | None) -> str:
        return self._servers.name(slot)

    def begin(
        self, script: Script, slot: int | None, given: Arguments, then: Then, wanted: Wanted = _once
    ) -> None:
        """Call a script; `then` gets the reply, or the exception. It is sent at once if that can be."""
        pool = self._servers.known(slot)
        link = self._way(pool).link if pool else None
        if link is None:
            self._spawn(self.call(script, slot, given, wanted), then)
            return

        def answered(reply: Any) -> None:
            if isinstance(reply, Exception):
                self._spawn(self.call(script, slot, given, wanted, (link, reply)), then)
            else:
                then(reply)

        link.send(script.by_digest(given), answered)

    async def call(
        self,
        script: Script,
        slot: int | None,
        given: Arguments,
        wanted: Wanted = _once,
        failed: Failed | None = None,
    ) -> Any:
        """The same for one who waits; goes on where the script was called before, and `failed`."""
        try:
            return await self._answered(slot, script.by_digest(given), wanted, failed)
        except NoScriptError:
            return await self._answered(slot, script.whole(given), wanted)

    async def ask(self, slot: int | None, *words: str | int) -> Any:
        """One command. Only how often it is sent is seen to: it may be one that looks."""
        return await self._answered(slot, command(len(words), [bulks(words)]))

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

    def _spawn(self, call: Coroutine[Any, Any, Any], then: Then) -> None:
        """What takes more than one attempt, told to `then` at the end."""

        async def finished() -> None:
            reply: Any
            try:
                reply = await call
            except Exception as error:
                reply = error
            then(reply)

        task = asyncio.create_task(finished(), name="store call")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(
        self, slot: int | None, words: bytes, wanted: Wanted = _once, failed: Failed | None = None
    ) -> Any:
        asking: ConnectionPool | None = None
        redirects = 0
        while True:
            if failed is None:
                try:
                    link = await self._link(asking or await self._servers.pool(slot))
                except (RedisError, OSError) as error:
                    asking = None
                    self._servers.failed()
                    await _pause(error, wanted)
                    continue
                try:
                    return await link.ask(words, asking=asking is not None)
                except (RedisError, OSError) as error:
                    failed = link, error
            (link, problem), failed = failed, None
            asking = None
            if isinstance(problem, AskError | MovedError):
                asking = self._servers.redirected(problem, link)
                redirects += 1
                if redirects > REDIRECTS:
                    await _pause(problem, wanted)
            elif self._did_nothing(link, problem):
                await _pause(problem, wanted)
            else:
                raise problem

    async def _link(self, pool: ConnectionPool) -> Link:
        way = self._way(pool)
        return way.link or await way.opened()

    def _way(self, pool: ConnectionPool) -> Way:
        if (way := self._ways.get(pool)) is None:
            way = self._ways[pool] = Way(pool)
        return way

    def _did_nothing(self, link: Link, error: Exception) -> bool:
        """Whether it is certain that the server did not; sees to it that another attempt may go elsewhere."""
        is_replica = isinstance(error, ReadOnlyError) or _READONLY in str(error)
        if is_replica:
            link.retire()  # a name may lead to another primary now
        did_nothing = is_replica or isinstance(error, AGAIN)
        if (did_nothing or not isinstance(error, ResponseError)) and not isinstance(error, TryAgainError):
            self._servers.failed()
        return did_nothing


async def _asked(server: Redis, words: Sequence[str]) -> Any:
    pool = server.connection_pool
    connection: Any = await pool.get_connection()  # type: ignore[no-untyped-call]
    try:
        await connection.send_command(*words)
        return await connection.read_response()
    finally:
        await pool.release(connection)


async def _pause(error: Exception, wanted: Wanted) -> None:
    """A moment before the next attempt; where nobody waits for it, the error is raised."""
    if not wanted():
        raise error
    await asyncio.sleep(PAUSE_SECONDS)


@lru_cache(maxsize=65_536)
def _slot(tag: str) -> int:
    return key_slot(tag.encode("utf-8", "surrogateescape"))
