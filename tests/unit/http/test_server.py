"""The data port on real sockets, on both event loops: connections from the first byte to the last."""

import asyncio
import gc
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sidecar.infrastructure.http import server
from sidecar.infrastructure.http.messages import Answer, Incoming, Respond
from sidecar.infrastructure.http.protocol import DataConnection
from sidecar.infrastructure.http.server import data_runner, read_body
from tests.certificates import Authority
from tests.parts import until
from tests.raw_http import request

LOOPS = ["asyncio", "uvloop"]
GET, LATER = request("GET", "/a"), request("GET", "/later")
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Run:
    """Runs a scenario on one of the loops; nothing of it may be in the log."""
    caplog.set_level(logging.WARNING)

    def running(scenario: Coroutine[Any, Any, None]) -> None:
        factory = asyncio.new_event_loop
        if request.param == "uvloop":
            import uvloop  # noqa: PLC0415

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario, 60))
        gc.collect()
        assert [record.getMessage() for record in caplog.records] == []

    return running


class Handler:
    """Answers at once; `/later` when it is told to, `/body` when the body is there."""

    def __init__(self) -> None:
        self.serving = True
        self.waiting: list[Callable[[], None]] = []
        self.arrived = asyncio.Event()
        self.peers: list[str | None] = []

    def start(self, call: Incoming, respond: Respond) -> Coroutine[Any, Any, Answer] | None:
        self.peers.append(call.peer)
        if call.target == "/later":
            self.waiting.append(lambda: respond(Answer(200, "", b"late")))
            self.arrived.set()
        elif call.target == "/body":
            return self._body(call)
        else:
            respond(Answer(200, "", call.target.encode()))
        return None

    async def _body(self, call: Incoming) -> Answer:
        self.arrived.set()
        body = await read_body(call, "")
        return Answer(200, "", str(len(body or b"")).encode())

    def release(self) -> None:
        for respond in self.waiting:
            respond()
        self.waiting.clear()


class Served:
    """A port with the handler behind it."""

    def __init__(self, handler: Handler, runner: web.ServerRunner, address: Any) -> None:
        self.handler, self.runner, self.address = handler, runner, address

    async def open(self, tls: ssl.SSLContext | None = None) -> "Caller":
        if isinstance(self.address, str):
            return Caller(*await asyncio.open_unix_connection(self.address))
        name = "127.0.0.1" if tls else None
        return Caller(*await asyncio.open_connection(*self.address, ssl=tls, server_hostname=name))

    @property
    def connections(self) -> tuple[DataConnection, ...]:
        made: Any = self.runner.server
        found: tuple[DataConnection, ...] = made._crowd.all()
        return found

    async def empty(self) -> None:
        await until(lambda: not self.connections, "no connection is left")


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """The body of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self.reader.readexactly(length)

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """As a process that was killed leaves it: the other side gets an error, not an end."""
        opened = self.writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def serving(*, path: Path | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    handler = Handler()
    runner = data_runner(handler)
    await runner.setup()
    if path:
        await web.UnixSite(runner, str(path)).start()
    else:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield Served(handler, runner, runner.addresses[0])
    finally:
        await runner.cleanup()


def test_twenty_thousand_pipelined_requests_are_answered_in_order(run: Run) -> None:
    """Read only as fast as their answers are."""

    async def scenario() -> None:
        async with serving() as served:
            caller = await served.open()

            async def send() -> None:
                for number in range(20_000):
                    caller.send(request("GET", f"/{number}"))
                    await caller.writer.drain()

            sending = asyncio.create_task(send())
            assert [await caller.answer() for _ in range(20_000)] == [b"/%d" % n for n in range(20_000)]
            await sending
            await caller.close()

    run(scenario())


def test_who_does_not_read_fills_no_memory(run: Run) -> None:
    """What is sent on is left where it is."""

    async def scenario() -> None:
        async with serving() as served:
            caller = await served.open()
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            stuck, sent = 0, 0
            while stuck < 20:
                before = caller.writer.transport.get_write_buffer_size()
                if before < 1_000_000:
                    caller.send(GET * 1000)
                    sent += 1000
                await asyncio.sleep(0.001)
                after = caller.writer.transport.get_write_buffer_size()
                stuck = stuck + 1 if before >= 1_000_000 and after == before else 0
            [connection] = served.connections
            assert connection.transport is not None
            assert connection.transport.get_write_buffer_size() < 1_000_000
            assert len(connection._queue) <= 16
            caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(sent):
                assert await caller.answer() == b"/a"
            await caller.close()

    run(scenario())


def test_who_says_no_more_reads_the_answers_that_are_due(run: Run) -> None:
    """Then the connection ends."""

    async def scenario() -> None:
        async with serving() as served:
            caller = await served.open()
            caller.send(LATER + GET + GET)
            caller.writer.write_eof()
            await served.handler.arrived.wait()
            await asyncio.sleep(0.02)  # the end has come
            served.handler.release()
            assert [await caller.answer() for _ in range(3)] == [b"late", b"/a", b"/a"]
            assert await caller.ended()
            await served.empty()
            await caller.close()

    run(scenario())


@pytest.mark.parametrize("sent", [LATER, LATER + GET * 50, request("POST", "/body", {"Content-Length": "9"})])
@pytest.mark.parametrize("ending", ["reset", "close"])
def test_who_vanishes_while_it_is_decided_leaves_nothing(run: Run, sent: bytes, ending: str) -> None:
    """No line in the log, no task, no connection."""

    async def scenario() -> None:
        async with serving() as served:
            tasks = asyncio.all_tasks()
            caller = await served.open()
            caller.send(sent)
            await served.handler.arrived.wait()
            if ending == "reset":
                caller.reset()
            else:
                await caller.close()
            await asyncio.sleep(0.01)
            served.handler.release()
            await served.empty()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() <= tasks

    run(scenario())


def test_who_vanishes_in_the_middle_of_many_answers_is_no_line_in_the_log(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as served:
            for _ in range(20):
                caller = await served.open()
                caller.send(LATER + GET * 5000)
                await served.handler.arrived.wait()
                served.handler.arrived.clear()
                caller.reset()
                served.handler.release()
            await served.empty()

    run(scenario())


def test_a_thousand_connections_leave_nothing(run: Run) -> None:
    """Not even for the garbage collector: it comes seldom."""

    async def scenario() -> None:
        async with serving() as served:
            gc.collect()
            gc.disable()
            try:
                before = sum(isinstance(one, DataConnection) for one in gc.get_objects())
                for number in range(1000):
                    caller = await served.open()
                    caller.send([GET, GET[:-5], POST_PART, b"nonsense\r\n\r\n", GET * 30][number % 5])
                    if number % 5 in (0, 4):
                        await caller.answer()
                    await caller.close()
                await served.empty()
                await asyncio.sleep(0.05)
                after = sum(isinstance(one, DataConnection) for one in gc.get_objects())
            finally:
                gc.enable()
            assert after - before <= 10

    run(scenario())


POST_PART = request("POST", "/body", {"Content-Length": "9"}) + b"x"


def test_told_to_stop_it_answers_who_has_asked_and_closes_who_has_not(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as served:
            idle, asking, sending = [await served.open() for _ in range(3)]
            idle.send(GET)
            asking.send(LATER)
            sending.send(POST_PART)
            assert await idle.answer() == b"/a"
            await until(lambda: len(served.handler.peers) == 3, "all have asked")
            served.handler.serving = False
            stopping = asyncio.create_task(served.runner.cleanup())
            assert await idle.ended()
            assert not stopping.done()
            served.handler.release()
            head = await asking.reader.readuntil(b"\r\n\r\n")
            assert b"\r\nConnection: close\r\n" in head
            sending.send(b"x" * 8)
            assert await sending.answer() == b"9"
            assert await sending.ended()
            await stopping
            for caller in (idle, asking, sending):
                await caller.close()

    run(scenario())


def test_told_to_stop_it_waits_no_longer_than_it_may(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.05)

    async def scenario() -> None:
        async with serving() as served:
            caller = await served.open()
            caller.send(LATER)
            await served.handler.arrived.wait()
            await served.runner.cleanup()
            assert await caller.ended()
            await caller.close()

    run(scenario())


def test_on_a_unix_socket_nobody_has_an_address(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(path=tmp_path / "s") as served:
            caller = await served.open()
            caller.send(GET + LATER)
            caller.writer.write_eof()
            assert await caller.answer() == b"/a"
            await served.handler.arrived.wait()
            served.handler.release()
            assert await caller.answer() == b"late"
            assert served.handler.peers == ["", ""]
            await caller.close()

    run(scenario())


def test_over_tls_it_is_the_same(run: Run, tmp_path: Path) -> None:
    """But for who says no more, which TLS takes for the end of both ways."""
    context, trusting = _tls(tmp_path)

    async def scenario() -> None:
        async with serving(tls=context) as served:
            caller = await served.open(trusting)
            caller.send(GET * 100 + request("POST", "/body", {}, b"x" * 900_000) + GET)
            assert [await caller.answer() for _ in range(102)] == [b"/a"] * 100 + [b"900000", b"/a"]
            caller.send(LATER)
            await served.handler.arrived.wait()
            await caller.close()
            await served.empty()
            served.handler.release()
            assert served.handler.peers[0] == "127.0.0.1"

    run(scenario())


def _tls(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(directory)
    certificate, key = authority.certify("server", "127.0.0.1")
    serving_with = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving_with.load_cert_chain(certificate, key)
    return serving_with, ssl.create_default_context(cafile=str(authority.file))
