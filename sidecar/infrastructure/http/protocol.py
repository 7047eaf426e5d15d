"""One connection of the data port: from bytes to calls and back, over aiohttp's own parser.

The parser is a library's, and strict; what stands above it is small, since that is what every request of
somebody's site waits for: no task, no request object of a framework, one write per answer. Requests of one
connection are answered in order, one after the other. A body is read only by those who need one; the rest of
it is thrown away before the next request is looked at.
"""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDict

from sidecar.infrastructure.connection import BODY_SECONDS, Crowd
from sidecar.infrastructure.http.access import peer_of
from sidecar.infrastructure.http.errors import MALFORMED, failed
from sidecar.infrastructure.http.held import HeldConnection, Outbox
from sidecar.infrastructure.http.messages import Answer, Handler, Headers, Incoming
from sidecar.infrastructure.http.parsing import MAX_QUEUE, loses_what_follows, request_parser
from sidecar.infrastructure.http.writing import answer_bytes

#: What is read of a body that nobody wants, so that the connection can go on; a longer one ends it.
MAX_UNWANTED = 16 * 1024 * 1024
#: How long it is read where the connection ends anyway: who is hung up on while it sends loses the answer.
LINGER_SECONDS = 5.0
_NO_HEADERS = Headers(CIMultiDict())
_NO_HTTP: tuple[Any, StreamReader] = (None, EMPTY_PAYLOAD)


class DataConnection(HeldConnection):
    """`handler` answers; `crowd` says whether there is room for it."""

    def __init__(self, handler: Handler, crowd: "Crowd[DataConnection]", outbox: Outbox) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, outbox)
        self._handler = handler
        self._crowd = crowd
        self._parser: Any = request_parser(self, loop)
        #: What came after an upgrade and the parser does not have yet.
        self._rest = b""
        self._task: asyncio.Task[None] | None = None
        #: The caller has nothing more to say.
        self._ended = False
        #: What came was no HTTP: where the next request would begin is not known.
        self._deaf = False
        #: The message after which nothing can be answered any more.
        self._last: Any = None
        self._going_on = False
        self._peer: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = peer_of(transport)
        if not self._crowd.takes(self):
            self.force_close()

    def data_received(self, data: bytes) -> None:
        if self._deaf or (self._closing and self._has_body):
            return
        if self._rest:
            data, self._rest = self._rest + data, b""
        self._read(data)
        if self._queue or self._buffer_paused:
            self._go_on_or_wait()

    @property
    def _held(self) -> int:
        """Requests that are not finished: at most `MAX_QUEUE` of them are parsed."""
        return len(self._queue) + (self._current is not None)

    def _go_on_or_wait(self) -> None:
        # What the parser keeps back while it is full comes before what the transport has.
        if self._held >= MAX_QUEUE:
            if not self._buffer_paused:
                self._pause_reading_for_buffer()
        elif self._buffer_paused:
            self._resume_reading_for_buffer()
        if self._current is None:
            self._next()

    def eof_received(self) -> bool:
        """Who has nothing more to say may still read the answers that are due; over TLS that cannot be."""
        self._ended = True
        if not self._has_body:
            return False
        self._break_off()
        due = self._current is not None or bool(self._queue)
        return due and self.transport is not None and not self.transport.get_extra_info("sslcontext")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.forget(self)
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()
        self._current, self._task, self._parser = None, None, None  # each of them knows this connection
        self._queue.clear()
        self.hang_up()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def _read(self, data: bytes) -> None:
        """Queue the requests in it."""
        while True:
            try:
                messages, upgraded, rest = self._parser.feed_data(data)
            except Exception:  # it has other words than HttpProcessingError for some of what is no HTTP
                self._deaf = True
                if not self._break_off():
                    self._queue.append(_NO_HTTP)
                return
            if messages:
                if not upgraded and len(messages) == 1 and self._takes_at_once(messages[0], data):
                    return
                self._queue.extend(messages)
                # A head that has begun behind them has its time too.
                self._begun = bool(data) and messages[-1][1] is EMPTY_PAYLOAD and not data.endswith(b"\n")
            elif data and not self._begun and self._has_body:
                self._waiting_since, self._begun = monotonic(), True
            if not upgraded:
                if messages and messages[-1][0].upgrade and loses_what_follows(messages[-1], data):
                    self._last = messages[-1][0]
                return
            # Nobody switches protocols here: what follows is another request.
            self._parser.set_upgraded(False)
            if not rest or self._held >= MAX_QUEUE:
                self._rest = rest
                return
            data = rest

    def _takes_at_once(self, parsed: tuple[Any, StreamReader], data: bytes) -> bool:
        """Starts on a request that came alone, as those of proxies do; false where there is more to it."""
        message, payload = parsed
        if payload is not EMPTY_PAYLOAD or self._current is not None or self._queue:
            return False
        if message.upgrade or self._paused or self._buffer_paused:
            return False
        self._begun = data[-1:] not in (b"\n", b"")
        self._start(message, payload)
        return True

    def _break_off(self) -> bool:
        """The rest of the last request's body does not come; false where nothing of it is missing."""
        body = self._queue[-1][1] if self._queue else self._current.stream if self._current else EMPTY_PAYLOAD
        if body.is_eof():
            return False
        body.set_exception(BadHttpMessage("the body is not complete"))
        return True

    def _next(self) -> None:
        """Start on the requests that wait, until one has to be waited for."""
        while self._queue and self._current is None and not self._paused and self._is_open:
            self._start(*self._queue.popleft())

    def _go_on(self) -> None:
        self._going_on = False
        if self._buffer_paused and self._held < MAX_QUEUE:
            self.data_received(b"")  # what was kept back
        self._next()

    def _start(self, message: Any, payload: StreamReader) -> None:
        if message is None:  # nothing for the log: anybody may send it
            self._current = Incoming("", "", _NO_HEADERS, stream=payload)
            self._respond(MALFORMED)
            return
        keep_alive = not message.should_close and message is not self._last
        method, version = message.method, message.version
        if method == "CONNECT" and not payload.is_eof():  # everything that follows would be its body
            payload, keep_alive = EMPTY_PAYLOAD, False
        self._current = call = Incoming(
            method,
            message.path,
            Headers(message.headers),
            None,
            "",
            b"",
            self._peer,
            payload,
            keep_alive,
            version is not HttpVersion11 and version < HttpVersion11,
        )
        try:
            awaited = self._handler.start(call, self._respond)
        except Exception:
            self._respond(failed(call))
            return
        if awaited is not None:
            self._task = asyncio.ensure_future(self._answer(awaited, call))
            # Of a caller that hangs up at once, it may never have begun.
            self._task.add_done_callback(lambda _: awaited.close())

    async def _answer(self, awaited: Coroutine[Any, Any, Answer], call: Incoming) -> None:
        call.proceed = self._proceed
        try:
            answer = await awaited
        except HttpProcessingError:  # in the middle of its body
            call.keep_alive, answer = False, MALFORMED
        except Exception:
            answer = failed(call)
        self._respond(answer)

    def _proceed(self) -> None:
        self.send()
        if self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _respond(self, answer: Answer) -> None:
        call, transport = self._current, self.transport
        if call is None or call.answered or transport is None:
            return
        call.answered = True
        last = (
            self._closing
            or not call.keep_alive
            or not self._handler.serving
            or (self._ended and not self._queue)
        )
        try:
            written = answer_bytes(answer, call, keep_alive=not last)
        except Exception:
            last, written = True, answer_bytes(failed(call), call, keep_alive=False)
        if not transport.is_closing():
            self._unsent += written
            self._outbox.add(self)
        if call.stream.is_eof():
            self._finished(last=last)
        else:
            self._task = asyncio.ensure_future(self._discard(call.stream, last=last))

    async def _discard(self, body: StreamReader, *, last: bool) -> None:
        left = MAX_UNWANTED
        try:
            async with asyncio.timeout(LINGER_SECONDS if last else BODY_SECONDS):
                while left >= 0 and (chunk := await body.readany()):
                    left -= len(chunk)
        except Exception:  # whatever is wrong with it, the connection cannot go on
            left = -1
        self._finished(last=last or self._closing or left < 0)

    def _finished(self, *, last: bool) -> None:
        if self._current is not None and self._current.method:
            self._parser.message_consumed()
        self._current, self._task, self.is_new = None, None, False
        self._waiting_since = monotonic()
        if last:
            self.hang_up()
        elif (self._queue or self._buffer_paused) and not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on)
