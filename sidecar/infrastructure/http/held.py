"""A connection as its port holds it: what it is owed, how patient we are with it, and how it ends."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any

from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader

from sidecar.infrastructure.connection import FIRST_REQUEST_SECONDS
from sidecar.infrastructure.http.messages import Incoming

#: What the head of a request may take. An idle connection is kept longer than any proxy keeps it, so that it
#: is never we who close one just being used.
HEAD_SECONDS = 30.0
KEEPALIVE_SECONDS = 3630.0


#: Answers that wait for each other at most.
MAX_TOGETHER = 16


class Outbox:
    """Sends answers of one turn of the event loop one right after the other.

    To send is cheap while the other side is awake, and dear where it has to be woken, which the first one
    does for all: in a flood of refusals, each of which is ready at once, that is a sixth of what they cost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[HeldConnection] = []

    def add(self, connection: "HeldConnection") -> None:
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._send)
        elif len(self._waiting) >= MAX_TOGETHER:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.send()


class HeldConnection(BaseProtocol):
    """`protocol.py` says what happens between its beginning and its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outbox: Outbox) -> None:
        super().__init__(loop)
        self._outbox = outbox
        self._unsent = b""
        self._queue: deque[tuple[Any, StreamReader]] = deque()
        #: The request that is being answered, or whose body is being thrown away.
        self._current: Incoming | None = None
        #: The answer under way is the last one.
        self._closing = False
        self._gone: asyncio.Event | None = None
        #: When the caller was waited for first: for a request, or for the rest of one. Not by the loop's own
        #: clock, which may count whole milliseconds, in which many are answered.
        self._waiting_since = monotonic()
        self._begun, self.is_new = False, True

    def send(self) -> None:
        """What waits to be sent goes."""
        unsent, self._unsent = self._unsent, b""
        if unsent and self.transport is not None and not self.transport.is_closing():
            self.transport.write(unsent)

    def close(self) -> None:
        """Ends it after the answer that is due, if there is one."""
        self._closing = True
        if self._current is None and not self._queue:
            self.hang_up()

    def hang_up(self) -> None:
        """Ends it once everything is written."""
        self._closing = True
        self.send()
        if self.transport is not None:
            self.transport.close()
        if self._gone is not None:
            self._gone.set()

    def give_up(self) -> None:
        """Ends one that dawdles: at once where it does not read what it is answered."""
        if self._is_open and not self._paused:
            self.hang_up()
        else:
            self.force_close()

    def force_close(self) -> None:
        self._closing = True
        self.send()
        if self.transport is not None:
            self.transport.abort()

    async def gone(self) -> None:
        """Returns when it has been hung up."""
        if self._is_open:
            self._gone = asyncio.Event()
            await self._gone.wait()

    def dawdles(self, now: float) -> bool:
        """Whether it keeps us waiting too long: for a request, the rest of one, or to read its answers."""
        if self._current is not None:
            return False
        patience = FIRST_REQUEST_SECONDS if self.is_new else KEEPALIVE_SECONDS
        busy = self._begun or self._paused or not self._is_open
        return now - self._waiting_since > (HEAD_SECONDS if busy else patience)

    @property
    def is_owed_nothing(self) -> bool:
        """Whether the next thing to happen is the caller's to do: a request, or the body of one."""
        return self._current is None or not self._has_body

    @property
    def rank(self) -> tuple[bool, float]:
        """Who is to go first: those that have had no answer, then the longest since their last one."""
        return not self.is_new, self._waiting_since

    @property
    def _has_body(self) -> bool:
        """Whether all of the request that is being answered has come."""
        return self._current is None or self._current.stream.is_eof()

    @property
    def _is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()
