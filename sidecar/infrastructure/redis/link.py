"""The way to one server: a connection that calls share, each sent at once, all answered in order.

redis-py makes the connection: TLS, login, database, sentinels. Its own way of asking, with a look at the
socket, timers and several turns of tasks for every command, costs as much as all the rest of a decision. So
once it is connected, the transport is taken over: a call is one write, and replies are read by hiredis.
"""

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

from sidecar.application.tasks import end
from sidecar.infrastructure.redis.deadlines import Deadlines
from sidecar.infrastructure.redis.pending import Pending, Then, into
from sidecar.infrastructure.redis.wire import bulks, command

_ASKING = command(1, [bulks(["ASKING"])])
_NOTHING_YET: Any = object()


class Link(asyncio.Protocol):
    """Calls on one connection that redis-py has made.

    Whoever gets no answer within the connection's `socket_timeout` is told redis-py's `TimeoutError`, and
    nobody new is taken: the connection ends with the last of those who are still in time.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_NOTHING_YET
        )
        self._waiting: deque[Pending] = deque()
        self._deadlines = Deadlines(connection.socket_timeout, _too_late, self.retire)
        # The one thing of the library's that has no public name.
        self._transport: asyncio.Transport = connection._writer.transport
        #: Whether new calls may be made.
        self.open = not self._transport.is_closing()
        self._before: Any = self._transport.get_protocol()
        self._transport.set_protocol(self)

    @property
    def host(self) -> str:
        """Of the server, as it was connected to."""
        return str(self.connection.host)

    def send(self, packed: bytes, then: Then) -> None:
        """Send a command, at once; `then` gets its reply, or redis-py's error."""
        answer = Pending(then)
        self._waiting.append(answer)
        self._deadlines.watch(answer)
        self._transport.write(packed)

    async def ask(self, packed: bytes, *, asking: bool = False) -> Any:
        """The same for one who waits. `asking`: it is about a slot that is on its way here."""
        if asking:  # which holds for the next command only
            self.send(_ASKING, lambda reply: None)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(packed, into(answer))
        return await answer

    def retire(self) -> None:
        """Takes no more calls; ends after the last answer."""
        self.open = False
        if self.over:
            self._transport.abort()

    @property
    def over(self) -> bool:
        """Whether it takes no calls, and nobody waits for an answer any more."""
        return not self.open and all(answer.done for answer in self._waiting)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING_YET:
                self._who_asked(reply).tell(reply)
        except InvalidResponse:
            self.open = False
            self._transport.abort()
        if not self.open:
            self.retire()

    def _who_asked(self, reply: Any) -> Pending:
        if not self._waiting or isinstance(reply, hiredis.PushNotification):
            raise InvalidResponse("nobody asked for this")
        return self._waiting.popleft()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.open = False
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            answer.tell(RedisConnectionError(f"the connection ended: {exc or 'the server closed it'}"))
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        """Who calls bounds what is under way."""

    def resume_writing(self) -> None:
        pass


class Way:
    """The link to one server, made when first used, and again where one has ended."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._link: Link | None = None
        #: Retired ones, until the last of their calls is answered.
        self._ending: list[Link] = []
        self._opening: asyncio.Task[Link] | None = None
        self._closed = False

    async def aclose(self) -> None:
        """Opens no more connections; those that there are, are the pool's to close."""
        self._closed = True
        if self._opening is not None:
            await end(self._opening)

    @property
    def link(self) -> Link | None:
        """The one that can be used at once."""
        return self._link if self._link is not None and self._link.open else None

    async def opened(self) -> Link:
        """The link, connected. Raises redis-py's errors."""
        if link := self.link:
            return link
        if self._closed:
            raise RedisConnectionError("no more connections are made")
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(), name="store connection")
            self._opening.add_done_callback(_noticed)
        # Whoever gives up does not end it for the others.
        link = await asyncio.shield(self._opening)
        if not link.open:  # nothing was sent, so another attempt may be made
            raise RedisConnectionError("the connection ended as soon as it was made")
        return link

    async def _open(self) -> Link:
        if self._link is not None:
            self._ending.append(self._link)
            self._link = None
        for ended in [link for link in self._ending if link.over]:
            self._ending.remove(ended)
            await ended.connection.disconnect(nowait=True)
            await self._pool.release(ended.connection)
        self._link = Link(await self._pool.get_connection())  # type: ignore[no-untyped-call]
        return self._link


def _too_late() -> Exception:
    return RedisTimeoutError("the server did not answer in time")


def _noticed(opening: asyncio.Task[Link]) -> None:
    """A failure is told to those who wait, and if nobody does any more, to nobody."""
    if not opening.cancelled():
        opening.exception()
