"""Serving an aiohttp runner at an address, from the bind to the last answer.

The file of a Unix socket outlives a program that is killed, and asyncio replaces whatever socket it finds. So
somebody is looked for behind the file first: one that answers is never taken over, a stale one is replaced.
"""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.web_runner import BaseRunner

from sidecar.infrastructure.certificates import keep_fresh, server_context
from sidecar.infrastructure.config.listen import Endpoint, Tls


class CannotListen(Exception):
    """An address to listen on is not to be had; the message names it, whose it is and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What one port is: the setting `name`, its address and its certificates."""

    name: str
    endpoint: Endpoint
    tls: Tls | None = None
    #: Other processes of ours listen at the same address; the kernel spreads connections over them.
    shared: bool = False


@asynccontextmanager
async def listening(runner: BaseRunner, port: Port) -> AsyncIterator[None]:
    """Serve at the port; at the end, answer what was accepted and close. Raises `CannotListen`."""
    await runner.setup()
    try:
        async with _fresh_certificates(port) as context:
            await _bind(runner, port, context)
            with _removed(port.endpoint.path):
                yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _fresh_certificates(port: Port) -> AsyncIterator[ssl.SSLContext | None]:
    if (tls := port.tls) is None:
        yield None
        return
    try:
        context = server_context(tls.certificate, tls.key, tls.client_ca)
    except ValueError as error:  # they have changed since the configuration was read
        raise CannotListen(f"{port.name}: {error}") from error
    keeping = asyncio.create_task(keep_fresh(context, tls.certificate, tls.key), name="certificates")
    try:
        yield context
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _bind(runner: BaseRunner, port: Port, context: ssl.SSLContext | None) -> None:
    site: web.BaseSite
    endpoint, name = port.endpoint, port.name
    if endpoint.path:
        site = web.UnixSite(runner, endpoint.path, ssl_context=context)
    else:
        site = web.TCPSite(
            runner, endpoint.host, endpoint.port, ssl_context=context, reuse_port=port.shared or None
        )
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


def check_free(port: Port) -> None:
    """Raises `CannotListen` where somebody listens already, whom several of ours would join unnoticed."""
    endpoint = port.endpoint
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
                probe.listen(1)
    except OSError as error:
        raise CannotListen(f"{port.name}: cannot listen on {endpoint}: {error.strerror or error}") from error
