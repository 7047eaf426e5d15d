"""Connections of both ports: bounded in number and patience; those of the admin port have errors of our form.

Whoever reaches a port can open connections and say nothing, or a byte a minute. Their number has to leave
files for everything else the process does, and a flood must not shut out those who ask. So a new connection
beyond the bound takes the place of others: first of those that have had no answer yet, then of those that
have been silent longest; never of one that waits for its answer.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sidecar.infrastructure.problem import CONTENT_TYPE, problem

#: From the opening of a connection to the end of its first request's head: a proxy connects to ask at once.
FIRST_REQUEST_SECONDS = 30.0
#: What the body of an accepted request may take.
BODY_SECONDS = 30.0
_log = logging.getLogger("sidecar.http")


@dataclass(frozen=True, slots=True)
class Bound:
    """How many connections a port holds; `crowded` is told how many were closed for others."""

    connections: int = 4096
    crowded: Callable[[int], None] = lambda closed: None


DEFAULT_BOUND = Bound()


class Guest(Protocol):
    """A connection."""

    @property
    def is_owed_nothing(self) -> bool:
        """Whether the next thing to happen is the caller's to do: a request, or the body of one."""
        ...

    @property
    def is_new(self) -> bool:
        """Whether nothing was answered on it."""
        ...

    @property
    def rank(self) -> tuple[bool, float]:
        """Who is to go first: those that have had no answer, then the longest since their last one."""
        ...

    def force_close(self) -> None: ...


G = TypeVar("G", bound=Guest)


class Crowd(Generic[G]):
    """The open connections of a port."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._held: dict[G, None] = {}

    def takes(self, guest: G) -> bool:
        """Hold it too, in the place of others if need be; false where all the others wait for answers."""
        if len(self._held) >= self._bound.connections and not self._make_room():
            self._bound.crowded(1)
            return False
        self._held[guest] = None
        return True

    def forget(self, guest: G) -> None:
        """It is closed."""
        self._held.pop(guest, None)

    def all(self) -> tuple[G, ...]:
        return tuple(self._held)

    def _make_room(self) -> bool:
        """Several at once, since to look at all of them for each new one would be slow."""
        idle = sorted((guest for guest in self._held if guest.is_owed_nothing), key=lambda guest: guest.rank)
        new = sum(guest.is_new for guest in idle)
        # Of the new ones the older half: the others may be about to ask.
        leaving = idle[: (new + 1) // 2 or (len(idle) + 15) // 16]
        for guest in leaving:
            del self._held[guest]
            guest.force_close()
        if leaving:
            self._bound.crowded(len(leaving))
        return bool(leaving)


class Connection(RequestHandler):
    """What is no HTTP is a 400 and nothing for the log: anybody may send it."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # The framework's own timer for connections that are idle, wound to go off sooner the first time.
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
        self._next_keepalive_close_time = self._loop.time() + FIRST_REQUEST_SECONDS
        self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    @property
    def is_owed_nothing(self) -> bool:
        asked = self._current_request
        return not self._messages if asked is None else not asked._payload.is_eof()

    @property
    def is_new(self) -> bool:
        return self._request_count <= (0 if self._current_request is None else 1)

    @property
    def rank(self) -> tuple[bool, float]:
        return not self.is_new, self._next_keepalive_close_time

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            _log.error("a request failed", exc_info=exc)
        detail = "the request is no valid HTTP" if status == 400 else "the sidecar failed on this request"
        response = web.Response(
            status=status,
            body=problem(status, detail),
            headers={"Content-Type": CONTENT_TYPE, "Server": "sidecar"},
        )
        response.force_close()
        return response


class BoundedServer(web.Server):
    """aiohttp's low-level server, with connections of ours and no more of them than its bound says."""

    def __init__(self, handler: Any, request_factory: Any, bound: Bound, options: dict[str, Any]) -> None:
        super().__init__(handler, request_factory=request_factory)
        self._options = options
        self._crowd: Crowd[Connection] = Crowd(bound)

    def __call__(self) -> Connection:
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if isinstance(handler, Connection) and not self._crowd.takes(handler):
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        if isinstance(handler, Connection):
            self._crowd.forget(handler)
        super().connection_lost(handler, exc)
