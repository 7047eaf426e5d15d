"""The servers of a cluster, and which of them has which slots, as far as is known.

Redis-py's own `RedisCluster` is not used: it sends again by itself what may have been counted, ends or renews
connections that others wait on whenever it looks for the slots, and forgets the servers of the URL. Here a
look changes what is known and nothing else, goes on in the background, and asks everybody who was ever named.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import AskError, MovedError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from sidecar.infrastructure.redis.first_answer import first_answer

Address = tuple[str, int]

#: The least time from one look to the next, however many calls find something changed.
LOOK_SECONDS = 0.1


class Cluster:
    """Finds the servers from those `named`; `redis_at` makes a client for one of them, connecting later."""

    def __init__(self, named: Sequence[Address], redis_at: Callable[[Address], Redis]) -> None:
        self._redis_at = redis_at
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        #: Who may be asked for the slots.
        self._named = tuple(named)
        self._known = set(named)
        #: Kept until the end: a call may be under way on one that has no slots any more, or none yet.
        self._servers: dict[Address, Redis] = {}
        self._looking: asyncio.Task[None] | None = None
        self._next_look = 0.0
        #: Why the last server that was asked in vain did not say who has which slots.
        self._problem = ""

    def name(self, slot: int | None) -> str:
        owner = self._owners[slot or 0]
        return f"{owner[0]}:{owner[1]}" if owner else ""

    def known(self, slot: int | None) -> ConnectionPool | None:
        """Connections to whoever has the slot, as far as is known."""
        owner = self._owners[slot or 0]
        return self._server(owner).connection_pool if owner else None

    async def pool(self, slot: int | None) -> ConnectionPool:
        """The same, asked for if need be; raises redis-py's `ConnectionError` if nobody has it."""
        if self._owners[slot or 0] is None:
            await asyncio.shield(self._look())
        if (pool := self.known(slot)) is None:
            raise RedisConnectionError(f"no server of the cluster says who has the slot{self._problem}")
        return pool

    async def servers(self) -> list[Redis]:
        """All that have slots."""
        if not all(self._owners):
            await asyncio.shield(self._look())
        return [self._server(owner) for owner in sorted({owner for owner in self._owners if owner})]

    def failed(self) -> None:
        """Someone is not there, or not in charge: looks, in the background, who is."""
        self._look()

    def redirected(self, error: AskError | MovedError, sender: Any) -> ConnectionPool | None:
        """Where to ask just now; `None` after a slot has moved for good, which is learnt."""
        address = (error.host or sender.host, int(error.port))
        if isinstance(error, MovedError):
            self._owners[error.slot_id] = address
            self._known.add(address)
            self._look()  # where one slot has moved, others have
            return None
        return self._server(address).connection_pool

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        # One that hangs is no reason to leave the others open.
        await asyncio.gather(*(redis.aclose() for redis in self._servers.values()), return_exceptions=True)

    def _server(self, address: Address) -> Redis:
        if (redis := self._servers.get(address)) is None:
            redis = self._servers[address] = self._redis_at(address)
        return redis

    def _look(self) -> asyncio.Task[None]:
        """The look that is under way, or a new one."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._find_out(), name="cluster look")
        return self._looking

    async def _find_out(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._next_look - loop.time()))
        if found := await self._first_answer():
            owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
            for first, last, addresses in found:
                owners[first : last + 1] = [addresses[0]] * (last + 1 - first)
            self._owners = owners
            self._known = {address for _, _, addresses in found for address in addresses}
        self._next_look = loop.time() + LOOK_SECONDS

    async def _first_answer(self) -> "Slots":
        """Of all servers, in random order."""
        addresses = list(self._known.union(self._named))
        random.shuffle(addresses)
        return await first_answer([partial(self._slots, address) for address in addresses]) or []

    async def _slots(self, address: Address) -> "Slots":
        """What this server says; nothing if it does not answer, or is of no cluster."""
        try:
            reply: Any = await self._server(address).execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
            return list(_read(reply, address[0]))
        except (RedisError, OSError, ValueError, LookupError, TypeError) as error:
            self._problem = f": {type(error).__name__}: {error}"
        return []


#: First slot, last slot, and who has them: the primary, then its replicas.
Slots = list[tuple[int, int, list[Address]]]


def _read(reply: Any, asked: str) -> Iterator[tuple[int, int, list[Address]]]:
    """Of `CLUSTER SLOTS`. A server that knows no name for itself means the one that it was asked by."""
    for first, last, primary, *replicas in reply:
        if not 0 <= first <= last < REDIS_CLUSTER_HASH_SLOTS:
            raise ValueError("no such slots")
        servers = [primary, *replicas]
        yield first, last, [(_text(host) or asked, int(port)) for host, port, *_ in servers]


def _text(host: bytes | str | None) -> str:
    return host.decode() if isinstance(host, bytes) else host or ""
