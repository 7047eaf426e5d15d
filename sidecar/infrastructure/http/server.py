"""aiohttp's low-level server, told to keep its own limits and answers out of our way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_parser import HttpRequestParserPy
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from sidecar.infrastructure.connection import Connection
from sidecar.infrastructure.http.parsing import PatientParser

#: Envoy accepts 60 kB of headers by default and 96 kB as we configure it; aiohttp's own 8 kB would be a 400
#: that ends the client's request.
_LIMITS: dict[str, Any] = {"max_line_size": 128 * 1024, "max_field_size": 128 * 1024, "max_headers": 512}
#: Longer than any proxy keeps an idle connection, so that it is never we who close one just being used.
KEEPALIVE_SECONDS = 3630
#: How long an accepted request may take after the sidecar was told to stop.
DRAIN_SECONDS = 10.0

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Connection(Connection):
    """Reads what proxies pass on, too."""

    __slots__ = ()

    def __init__(self, server: "DataServer", **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)

        def patient() -> HttpRequestParserPy:
            return HttpRequestParserPy(
                self,
                self._loop,
                self._read_bufsize,
                payload_exception=RequestPayloadError,
                auto_decompress=False,
                max_msg_queue_size=self._max_msg_queue_size,
                **_LIMITS,
            )

        self._parser: Any = PatientParser(self._parser, patient)


class DataServer(web.Server):
    """Calls `handler` for every request, whatever its method, target and Expect header."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": KEEPALIVE_SECONDS,
            # Bodies are not ours to unpack: one that is no gzip after all would end the connection.
            "auto_decompress": False,
            **_LIMITS,
        }

    def __call__(self) -> RequestHandler:
        return _Connection(self, **self._options)


def data_runner(handler: Handler) -> web.ServerRunner:
    return web.ServerRunner(DataServer(handler), shutdown_timeout=DRAIN_SECONDS)


async def read_body(request: web.BaseRequest) -> bytes | None:
    """The body, or `None` when it is longer than 1 MiB. Callers that wait for `100 Continue` get it."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The writer takes what was written for the beginning of the answer otherwise.
        request.writer.output_size = 0
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        return None
