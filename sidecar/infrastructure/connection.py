"""A connection of an aiohttp server, whose own errors are ours in form and repeat nothing that was sent."""

import logging

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sidecar.infrastructure.problem import CONTENT_TYPE, problem

_log = logging.getLogger("sidecar.http")


class Connection(RequestHandler):
    """What is no HTTP is a 400 and nothing for the log: anybody may send it."""

    __slots__ = ()

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
