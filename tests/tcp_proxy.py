"""A TCP proxy between a client and a server that tests put faults into."""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Self

from tests.parts import until


class TcpProxy:
    """Passes bytes on between whoever connects to `port` of 127.0.0.1 and `target_port` there.

    Requests always pass. Replies do at first and after `pass_replies()`; after `hold_replies()` they wait,
    and after `slow_replies()` for so long; after `drop_replies()` the connection is closed in the place of
    each, after `tear_replies()` it is reset in the middle of each. Without a `port`, it is a free one.
    """

    def __init__(self, target_port: int, *, port: int = 0) -> None:
        self.target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._until_dropping: int | None = None
        self._late_seconds = 0.0
        self._tearing = False
        self.port = port
        #: Connections that clients have opened, ever and now, and replies that waited since the last
        #: `hold_replies()`.
        self.accepted = 0
        self.open = 0
        self.kept_back = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def hold_replies(self) -> None:
        self._passing.clear()
        self.kept_back = 0

    def drop_replies(self, *, after: int = 0) -> None:
        """From now on, but for so many that still pass."""
        self._until_dropping = after

    def slow_replies(self, seconds: float) -> None:
        self._late_seconds = seconds

    def tear_replies(self) -> None:
        self._tearing = True

    def pass_replies(self) -> None:
        self._until_dropping = None
        self._late_seconds = 0.0
        self._tearing = False
        self._passing.set()

    def cut(self) -> None:
        """Close all connections, without a word."""
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await until(lambda: not self._tasks, "the proxy's connections end")
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        to_server = None
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self.target_port)
            requests = asyncio.create_task(self._requests(client, to_server))
            replies = asyncio.create_task(self._replies(server, to_client))
            try:
                await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                requests.cancel()
                replies.cancel()
                await asyncio.gather(requests, replies, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            to_client.transport.abort()
            if to_server is not None:
                to_server.transport.abort()

    async def _requests(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while data := await client.read(65536):
            to_server.write(data)
            await to_server.drain()

    async def _replies(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while data := await server.read(65536):
            if self._until_dropping == 0:
                return
            if self._until_dropping:
                self._until_dropping -= 1
            if not self._passing.is_set():
                self.kept_back += 1
                await self._passing.wait()
            await asyncio.sleep(self._late_seconds)
            if self._tearing:
                await _tear(data, to_client)
                return
            to_client.write(data)
            await to_client.drain()


async def _tear(data: bytes, to_client: asyncio.StreamWriter) -> None:
    """Half of it, and a reset instead of an end."""
    to_client.write(data[: len(data) // 2])
    await to_client.drain()
    no_lingering = struct.pack("ii", 1, 0)
    to_client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_lingering)
