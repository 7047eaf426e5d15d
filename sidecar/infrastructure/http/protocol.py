"""One connection of the data port: from bytes to calls and back, over aiohttp's own parser.

The parser is a library's, and strict; what stands above it is small, since that is what every request of
somebody's site waits for: no task, no request object of a framework, one write per answer. Requests of one
connection are answered in order. A body is read only by those who need one; the rest of it is thrown away
before the next request is looked at.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from sidecar.infrastructure.connection import BODY_SECONDS, FIRST_REQUEST_SECONDS, Crowd
from sidecar.infrastructure.http.messages import Answer, Incoming
from sidecar.infrastructure.http.parsing import PatientParser
from sidecar.infrastructure.http.writing import answer_bytes
from sidecar.infrastructure.problem import CONTENT_TYPE, problem

#: Envoy accepts 60 kB of headers by default and 96 kB as we configure it; aiohttp's own 8 kB would be a 400
#: that ends the client's request.
LIMITS: dict[str, Any] = {"max_line_size": 128 * 1024, "max_field_size": 128 * 1024, "max_headers": 512}
#: Requests that may wait on one connection; no proxy pipelines.
MAX_QUEUE = 16
READ_BUFFER = 2**16
MAX_BODY = 1024 * 1024
#: What is read of a body that nobody wants, so that the connection can go on; a longer one ends it.
MAX_UNWANTED = 16 * MAX_BODY
#: What the head of a request may take. An idle connection is kept longer than any proxy keeps it, so that it
#: is never we who close one just being used.
HEAD_SECONDS = 30.0
KEEPALIVE_SECONDS = 3630.0
_NO_HTTP: tuple[Any, StreamReader] = (None, EMPTY_PAYLOAD)
_log = logging.getLogger("sidecar.http")

Respond = Callable[[Answer], None]


class Handler(Protocol):
    """Answers calls: at once or later through `respond`, or by what is returned for it to be awaited."""

    @property
    def serving(self) -> bool: ...

    def start(self, call: Incoming, respond: Respond) -> Awaitable[Answer] | None: ...


class DataConnection(BaseProtocol):
    """`handler` answers; `crowd` says whether there is room for it."""

    def __init__(self, handler: Handler, crowd: "Crowd[DataConnection]") -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop)
        self._handler = handler
        self._crowd = crowd
        self._new_parser()
        self._queue: deque[tuple[Any, StreamReader]] = deque()
        #: The request that is being answered, and the bytes of its answer so far.
        self._current: Incoming | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        #: What came was no HTTP: where the next request would begin is not known.
        self._deaf = False
        self._idle: asyncio.Event | None = None
        #: When the caller was waited for first, by the loop's clock: for a request, or for the rest of one.
        self._waiting_since = loop.time()
        self._begun = False
        self.is_new = True
        self._peer: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = _peer(transport)
        if not self._crowd.takes(self):
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.forget(self)
        self._closing = True
        super().connection_lost(exc)
        with contextlib.suppress(Exception):  # of a body that is not complete
            self._parser.feed_eof()  # type: ignore[union-attr]
        if self._task is not None:
            self._task.cancel()
        self._queue.clear()
        self._became_idle()

    def data_received(self, data: bytes) -> None:
        if self._closing or self._deaf:
            return
        try:
            messages, upgraded, rest = self._parser.feed_data(data)  # type: ignore[union-attr]
        except HttpProcessingError:
            messages, upgraded, rest = [_NO_HTTP], False, b""
            self._deaf = True
        if messages:
            self._queue.extend(messages)
            if len(self._queue) >= MAX_QUEUE and not self._buffer_paused:
                self._pause_reading_for_buffer()  # the parser keeps back what follows
            self._begun = False
        elif data and not self._begun and self._current is None:
            self._waiting_since, self._begun = self._loop.time(), True
        if upgraded:
            # Nobody switches protocols here: what follows is another request.
            self._new_parser()
            if rest:
                self.data_received(rest)
        if self._current is None:
            self._next()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._current is None:
            self._next()

    def close(self) -> None:
        """Ends it after the answer under way, if there is one."""
        self._closing = True
        if self._current is None:
            self._hang_up()

    async def idle(self) -> None:
        """Returns when no answer is under way."""
        if self._current is not None:
            self._idle = asyncio.Event()
            await self._idle.wait()

    @property
    def is_owed_nothing(self) -> bool:
        """Whether the next thing to happen is the caller's to do: a request, or the body of one."""
        return self._current is None or not self._current.body.is_eof()

    @property
    def rank(self) -> tuple[bool, float]:
        """Who is to go first: those that have had no answer, then the longest since their last one."""
        return not self.is_new, self._waiting_since

    def force_close(self) -> None:
        self._closing = True
        if self.transport is not None:
            self.transport.abort()

    def dawdles(self, now: float) -> bool:
        """Whether it keeps us waiting too long: for its first request, the rest of one, or another one."""
        if self._current is not None:
            return False
        patience = FIRST_REQUEST_SECONDS if self.is_new else KEEPALIVE_SECONDS
        return now - self._waiting_since > (HEAD_SECONDS if self._begun else patience)

    def hang_up(self) -> None:
        self._closing = True
        self._hang_up()

    def _next(self) -> None:
        """Start on the requests that wait, until one has to be waited for."""
        while self._queue and self._current is None and not self._paused and not self._closing:
            message, payload = self._queue.popleft()
            self._parser.message_consumed()  # type: ignore[union-attr]
            self._start(message, payload)
        if self._buffer_paused and len(self._queue) < MAX_QUEUE and not self._closing:
            self._resume_reading_for_buffer()
            self._loop.call_soon(self.data_received, b"")  # what the parser kept back

    def _start(self, message: Any, payload: StreamReader) -> None:
        if message is None:
            # Nothing for the log: anybody may send it.
            self._current = Incoming("", "", (), None, payload, keep_alive=False, old=False)
            self._respond(_problem(400, "the request is no valid HTTP"))
            return
        call = Incoming(
            method=message.method,
            target=message.path,
            header_items=message.headers.items(),
            peer=self._peer,
            body=payload,
            keep_alive=not message.should_close and self._handler.serving,
            old=message.version < HttpVersion11,
        )
        self._current = call
        try:
            awaited = self._handler.start(call, self._respond)
        except Exception:
            self._failed()
            return
        if awaited is not None:
            self._task = asyncio.ensure_future(self._answer(awaited, call))

    async def _answer(self, awaited: Awaitable[Answer], call: Incoming) -> None:
        call.proceed = self._proceed
        try:
            answer = await awaited
        except asyncio.CancelledError:
            raise
        except Exception:
            self._failed()
        else:
            self._respond(answer)

    def _failed(self) -> None:
        _log.exception("a request failed")
        if self._current is not None:
            self._current.keep_alive = False
            self._respond(_problem(500, "the sidecar failed on this request"))

    def _proceed(self) -> None:
        if self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _respond(self, answer: Answer) -> None:
        call = self._current
        if call is None or self.transport is None:
            return
        keep_alive = call.keep_alive and not self._closing and self._handler.serving
        self.transport.write(answer_bytes(answer, call, keep_alive=keep_alive))
        if not keep_alive:
            self._finished()
            self.hang_up()
        elif call.body is EMPTY_PAYLOAD or call.body.is_eof():
            self._finished()
            if self._queue:
                self._loop.call_soon(self._go_on)
        else:
            self._task = asyncio.ensure_future(self._discard(call.body))

    def _go_on(self) -> None:
        if self._current is None:
            self._next()

    def _finished(self) -> None:
        self._current, self.is_new = None, False
        self._waiting_since = self._loop.time()
        self._became_idle()

    def _became_idle(self) -> None:
        if self._idle is not None:
            self._idle.set()

    async def _discard(self, body: StreamReader) -> None:
        read = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while chunk := await body.readany():
                    read += len(chunk)
                    if read > MAX_UNWANTED:
                        break
        except Exception:  # whatever is wrong with it, the connection cannot go on
            read = MAX_UNWANTED + 1
        self._finished()
        if read > MAX_UNWANTED:
            self.hang_up()
        else:
            self._next()

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def _new_parser(self) -> None:
        options: dict[str, Any] = {"auto_decompress": False, "max_msg_queue_size": MAX_QUEUE, **LIMITS}

        def patient() -> Any:
            return HttpRequestParserPy(self, self._loop, READ_BUFFER, **options)

        self._parser = PatientParser(HttpRequestParser(self, self._loop, READ_BUFFER, **options), patient)  # type: ignore[assignment]


def _peer(transport: asyncio.BaseTransport) -> str | None:
    """The address of who asks; empty on a Unix socket, whose peers have none that says anything."""
    if isinstance(transport.get_extra_info("sockname"), str | bytes):
        return ""
    peer = transport.get_extra_info("peername")
    return peer[0] if peer else None


def _problem(status: int, detail: str) -> Answer:
    return Answer(status, {"Content-Type": CONTENT_TYPE}, problem(status, detail))
