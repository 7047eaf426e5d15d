"""Serving an aiohttp runner at an address, from the bind to the last answer.

The file of a Unix socket outlives a program that is killed, and asyncio replaces whatever socket it finds. So
somebody is looked for behind the file first: one that answers is never taken over, a stale one is replaced.
"""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from aiohttp.web_runner import BaseRunner

from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.certificates import LOOK_SECONDS, FreshContext
from sidecar.infrastructure.config.listen import Endpoint, Tls

#: Files that are none of the data port's: connections to the store, the admin port's, logs, reloads.
RESERVED_FILES = 512

#: What whoever has connected at the last moment has for a request.
LAST_SECONDS = 0.1


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
    #: How often its certificates are looked at.
    look_seconds: float = LOOK_SECONDS


@asynccontextmanager
async def listening(runner: BaseRunner, port: Port) -> AsyncIterator[None]:
    """Serve at the port; at the end, answer what was accepted and close. Raises `CannotListen`."""
    await runner.setup()
    try:
        async with _fresh_certificates(port) as context:
            await _bind(runner, port, context)
            with _removed(port.endpoint.path):
                yield
            await _close_door(runner, context)
    finally:
        await runner.cleanup()


async def _close_door(runner: BaseRunner, context: ssl.SSLContext | None) -> None:
    """Nobody else is let in, and whoever has connected before may ask.

    A server of asyncio that is closed forgets whom it has accepted in the same turn, and the kernel resets
    whoever was not accepted yet. So accepting ends first, and those that wait then are let in by hand.
    """
    loop = asyncio.get_running_loop()
    doors = [door for site in runner.sites for door in getattr(site, "_server").sockets]  # noqa: B009
    for door in doors:
        loop.remove_reader(door.fileno())
    for _ in range(2):  # turns, in which those that were accepted are taken over
        await asyncio.sleep(0)
    waiting = [caller for door in doors for caller in _waiting_at(door.fileno())]
    for site in runner.sites:
        await site.stop()
    entering = [
        asyncio.ensure_future(loop.connect_accepted_socket(_protocols(runner), caller, ssl=context))
        for caller in waiting
    ]
    await asyncio.sleep(LAST_SECONDS)
    for one in entering:
        one.cancel()
    await asyncio.gather(*entering, return_exceptions=True)


def _protocols(runner: BaseRunner) -> Callable[[], asyncio.Protocol]:
    made: Any = runner.server
    return cast("Callable[[], asyncio.Protocol]", made)


def _waiting_at(door: int) -> Iterator[socket.socket]:
    """Connections that the kernel has made and nobody has accepted."""
    with socket.socket(fileno=os.dup(door)) as listener:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            caller.setblocking(False)
            yield caller


@asynccontextmanager
async def _fresh_certificates(port: Port) -> AsyncIterator[ssl.SSLContext | None]:
    if (tls := port.tls) is None:
        yield None
        return
    try:
        context = FreshContext.of(tls.files)
    except InvalidValue as error:  # they have changed since the configuration was read
        raise CannotListen(f"{port.name}_tls.{error}") from error
    keeping = asyncio.create_task(context.keep(port.look_seconds), name="certificates")
    try:
        yield context
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _bind(runner: BaseRunner, port: Port, context: ssl.SSLContext | None) -> None:
    site: web.BaseSite
    endpoint = port.endpoint
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
        raise _cannot(port, error) from error


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


def affordable(connections: int) -> int:
    """So many connections, or as many as this process may have files for; the soft limit is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    return max(soft - RESERVED_FILES, soft // 2)


async def check_free(port: Port) -> None:
    """Raises `CannotListen` where somebody listens already, whom several of ours would join unnoticed."""
    endpoint = port.endpoint
    try:
        found = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, endpoint.host, endpoint.port, start_serving=False
        )
    except OSError as error:
        raise _cannot(port, error) from error
    found.close()
    await found.wait_closed()


def _cannot(port: Port, error: OSError) -> CannotListen:
    # asyncio's own text says the address again.
    known = error.errno in errno.errorcode
    reason = os.strerror(error.errno) if error.errno and known else error.strerror or str(error)
    return CannotListen(f"{port.name}: cannot listen on {port.endpoint}: {reason}")
