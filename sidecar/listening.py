"""Serving an aiohttp runner at an address, from the bind to the last answer.

The file of a Unix socket outlives a program that is killed, and asyncio replaces whatever socket it finds. So
somebody is looked for behind the file first: one that answers is never taken over, a stale one is replaced.
"""

import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from aiohttp.web_runner import BaseRunner

from sidecar.infrastructure.config.listen import Endpoint


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
        with _removed(endpoint.path):
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
        if endpoint.path:
            _check_unanswered(endpoint.path)
        await site.start()
    except OSError as error:
        # asyncio's own text says the address again.
        known = error.errno in errno.errorcode
        reason = os.strerror(error.errno) if error.errno and known else error.strerror or str(error)
        raise CannotListen(f"{name}: cannot listen on {endpoint}: {reason}") from error


def _check_unanswered(path: str) -> None:
    """Raises `OSError` where somebody listens, or where that cannot be told."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a socket of this machine answers at once, or has too many callers waiting
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


@contextmanager
def _removed(path: str | None) -> Iterator[None]:
    """At the end the socket's file goes, unless it is no longer ours.

    While we still listen: afterwards another sidecar may have put its own there.
    """
    made = _identity(path)
    try:
        yield
    finally:
        if path and made and _identity(path) == made:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _identity(path: str | None) -> tuple[int, int] | None:
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found else None
