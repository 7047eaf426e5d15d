"""All connections of the data port: made, watched for those that dawdle, and closed at the end."""

import asyncio
from time import monotonic
from typing import Any

from aiohttp import web

from sidecar.infrastructure.connection import BODY_SECONDS, DEFAULT_BOUND, Bound, Crowd
from sidecar.infrastructure.http.held import Outbox
from sidecar.infrastructure.http.messages import Handler, Incoming
from sidecar.infrastructure.http.protocol import DataConnection

MAX_BODY = 1024 * 1024
#: How long an accepted request may take after the sidecar was told to stop.
DRAIN_SECONDS = 10.0
LOOK_SECONDS = 1.0


class DataServer:
    """Makes a connection for each that is accepted; an aiohttp runner looks after it."""

    def __init__(self, handler: Handler, bound: Bound) -> None:
        self._handler = handler
        self._crowd = Crowd[DataConnection](bound)
        self._watching: asyncio.TimerHandle | None = None
        self._outbox: Outbox | None = None

    def __call__(self) -> DataConnection:
        if self._watching is None or self._outbox is None:
            self._outbox = Outbox(asyncio.get_running_loop())
            self._watch()
        return DataConnection(self._handler, self._crowd, self._outbox)

    def pre_shutdown(self) -> None:
        """Idle connections are closed; the others after their answer."""
        for connection in self._crowd.all():
            connection.close()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 as aiohttp's runner has it
        """Waits so many seconds for answers under way."""
        if self._watching is not None:
            self._watching.cancel()
        self.pre_shutdown()  # of those, too, that have come since
        waiting = [asyncio.ensure_future(connection.gone()) for connection in self._crowd.all()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)
        for task in waiting:
            task.cancel()
        for connection in self._crowd.all():
            connection.hang_up()

    def _watch(self) -> None:
        """Once a second, over all: a timer for each request would cost each of them."""
        loop = asyncio.get_running_loop()
        now = monotonic()
        for connection in self._crowd.all():
            if connection.dawdles(now):
                connection.give_up()
        self._watching = loop.call_later(LOOK_SECONDS, self._watch)


def data_runner(handler: Handler, bound: Bound = DEFAULT_BOUND) -> web.ServerRunner:
    server: Any = DataServer(handler, bound)
    return web.ServerRunner(server, shutdown_timeout=DRAIN_SECONDS)


async def read_body(call: Incoming, expects: str) -> bytes | None:
    """The body, or `None` when it is longer than 1 MiB. Callers that wait for `100 Continue` get it.

    Raises `TimeoutError` where it does not come in time.
    """
    if call.proceed is not None and expects.lower() == "100-continue":
        call.proceed()
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while chunk := await call.stream.readany():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    return None
    except TimeoutError as error:
        call.stream.set_exception(error)  # nobody is to wait for the rest of it again
        raise
    return b"".join(chunks)
