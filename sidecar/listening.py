"""Serving an aiohttp runner at an address, from the bind to the last answer."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.web_runner import BaseRunner

from sidecar.infrastructure.config.schema import Endpoint


class CannotListen(Exception):
    """An address to listen on is not to be had; the message names it, whose it is and why."""


@asynccontextmanager
async def listening(runner: BaseRunner, endpoint: Endpoint, name: str) -> AsyncIterator[None]:
    """Serve at `endpoint` (the setting `name`); at the end, answer what was accepted and close.

    Raises `CannotListen`.
    """
    await runner.setup()
    try:
        await _bind(runner, endpoint, name)
        yield
    finally:
        await runner.cleanup()


async def _bind(runner: BaseRunner, endpoint: Endpoint, name: str) -> None:
    site: web.BaseSite
    if endpoint.path:
        site = web.UnixSite(runner, endpoint.path)
    else:
        site = web.TCPSite(runner, endpoint.host, endpoint.port)
    try:
        await site.start()
    except OSError as error:
        # asyncio's own text says the address again.
        known = error.errno in errno.errorcode
        reason = os.strerror(error.errno) if error.errno and known else error.strerror or str(error)
        raise CannotListen(f"{name}: cannot listen on {endpoint}: {reason}") from error
