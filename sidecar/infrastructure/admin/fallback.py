"""What the framework would answer by itself, in our form: no such path, another method, an unknown `Expect`,
what is no HTTP. But for the last, all of it behind the guard, so that only known callers learn what exists.
"""

import asyncio
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Handler

from sidecar.infrastructure.admin.answers import problem_answer
from sidecar.infrastructure.connection import BODY_SECONDS, Bound, BoundedServer


class Everything(web.DynamicResource):
    """Matches last, whatever is asked: also `OPTIONS *`, which is no path."""

    def __init__(self) -> None:
        super().__init__("/{path}")
        self._route = self.add_route("*", nothing_there, expect_handler=expect_later)

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo, set[str]]:
        return web.UrlMappingMatchInfo({}, self._route), set()


async def nothing_there(request: web.Request) -> web.Response:
    """404, or 405 where another method would have found something."""
    allowed = await _methods(request)
    if not allowed:
        return problem_answer(404, "nothing is served at this path")
    listed = ", ".join(sorted(allowed))
    return problem_answer(405, f"this path takes {listed}", Allow=listed)


async def _methods(request: web.Request) -> set[str]:
    found: set[str] = set()
    for resource in request.app.router.resources():
        _, allowed = await resource.resolve(request)
        found |= allowed
    return found


async def expect_later(request: web.Request) -> None:
    """For the router, which would answer before it is known who asks: `expectations` does it."""


@web.middleware
async def expectations(request: web.Request, handler: Handler) -> web.StreamResponse:
    """`100-continue` gets its answer before the body is read, everything else a 417."""
    expected = request.headers.get("Expect", "")
    if expected and request.version >= HttpVersion11:
        if expected.lower() != "100-continue":
            return problem_answer(417, "the only expectation that is met is 100-continue")
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The writer takes what was written for the beginning of the answer otherwise.
        request.writer.output_size = 0
    return await handler(request)


@web.middleware
async def bodies_come(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reads the body, which the routes then find in the request: it has to be there in time."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            await request.read()
    except TimeoutError:
        return problem_answer(408, "the body did not come in time")
    return await handler(request)


class Runner(web.AppRunner):
    """Serves an application by connections of ours."""

    def __init__(self, application: web.Application, bound: Bound, **options: Any) -> None:
        super().__init__(application, **options)
        self._bound = bound

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return BoundedServer(made.request_handler, made.request_factory, self._bound, made._kwargs)
