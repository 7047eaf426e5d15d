"""Running: the store, the ports and what is looked after beside them; serve, and drain.

Which objects there are, and how a configuration gets to them, is in `composition.py`.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sidecar import event_loop
from sidecar.application.tasks import end
from sidecar.composition import Sidecar, is_embedded
from sidecar.infrastructure.admin.api import admin_runner
from sidecar.infrastructure.config.loading import Configuration
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.connection import Bound
from sidecar.infrastructure.http.server import data_runner
from sidecar.infrastructure.redis.connection import Store, close, connect
from sidecar.infrastructure.redis.embedded import EmbeddedServer
from sidecar.listening import Port, affordable, listening
from sidecar.reloading import Reloader

#: When a connection that does not answer is closed. Decisions wait for `store.timeout_ms` only; but closing
#: at once would turn a slow moment of the store into a storm of new connections.
GIVE_UP_SECONDS = 1.0
#: People, dashboards and Prometheus need a few.
ADMIN_CONNECTIONS = 128
_log = logging.getLogger("sidecar")


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several processes; `store` is the embedded store that they share, if it is that."""

    store: str | None = None


async def serve(
    configuration: Configuration,
    *,
    ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
    worker: Worker | None = None,
) -> None:
    """Run until `stop` is set, or SIGTERM or SIGINT comes. `ready` is called once both ports are served.

    A `worker` is one of several processes on the same ports. Raises `CannotListen`, and `StoreCannotStart`
    for the embedded store; a store elsewhere may be away.
    """
    stop, reread = stop or set_by(signal.SIGTERM, signal.SIGINT), set_by(signal.SIGHUP)
    settings = configuration.settings
    async with AsyncExitStack() as stack:
        url = (
            worker.store if worker and worker.store else await stack.enter_async_context(store_url(settings))
        )
        patience = max(GIVE_UP_SECONDS, settings.store.timeout_ms / 1000)
        counting = await stack.enter_async_context(_client(url, patience))
        control = await stack.enter_async_context(_client(url, GIVE_UP_SECONDS))
        looking = await stack.enter_async_context(_client(url, GIVE_UP_SECONDS))
        with event_loop.without_collections():
            sidecar = Sidecar(configuration, counting, control, looking)
        stack.push_async_callback(sidecar.aclose)
        await stack.enter_async_context(_watching(sidecar, reread))
        data, admin = ports(settings)
        proxies, people = _bounds(settings, sidecar)
        await stack.enter_async_context(listening(data_runner(sidecar.front, proxies), data))
        await stack.enter_async_context(
            listening(admin_runner(sidecar.admin_routes, sidecar.access, people), admin)
        )
        sidecar.readiness.serving = True
        _log.info("serving", extra={"authz": settings.listen.authz, "admin": settings.listen.admin})
        event_loop.settle()
        ready()
        await stop.wait()
        sidecar.readiness.serving = False
        _log.info("stopping; accepted requests are answered first")
        # Answers close their connections from now on; requests that are already on them still come in.
        await asyncio.sleep(sidecar.reloader.configuration.settings.listen.leave_seconds)


def _bounds(settings: Settings, sidecar: Sidecar) -> tuple[Bound, Bound]:
    """How many connections the data port and the admin port hold."""
    wanted = settings.listen.max_connections
    if (fitting := affordable(wanted)) < wanted:
        _log.warning(
            "the limit of open files is too low for listen.max_connections",
            extra={"wanted": wanted, "held": fitting},
        )
    return (
        Bound(fitting, partial(sidecar.port_crowded, "authz")),
        Bound(ADMIN_CONNECTIONS, partial(sidecar.port_crowded, "admin")),
    )


def ports(settings: Settings) -> tuple[Port, Port]:
    """The data port and the admin port."""
    listen, shared = settings.listen, settings.workers > 1
    return (
        Port(name="listen.authz", endpoint=listen.authz_endpoint, tls=listen.authz_tls, shared=shared),
        Port(name="listen.admin", endpoint=listen.admin_endpoint, tls=listen.admin_tls, shared=shared),
    )


def set_by(*numbers: signal.Signals) -> asyncio.Event:
    """An event that these signals set, instead of ending the process."""
    event = asyncio.Event()
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


@asynccontextmanager
async def store_url(settings: Settings) -> AsyncIterator[str]:
    """Where the store is; the embedded one is started here and stopped at the end."""
    if not is_embedded(settings):
        yield settings.store.url
        return
    directory = settings.store.url.removeprefix("embedded:")
    server = EmbeddedServer(Path(directory) if directory else None)
    await server.start()
    _log.warning("the store is embedded: it counts for this sidecar alone")
    try:
        yield server.url
    finally:
        await server.stop()


@asynccontextmanager
async def _client(url: str, give_up_seconds: float) -> AsyncIterator[Store]:
    redis = connect(url, give_up_seconds)
    try:
        yield redis
    finally:
        await close(redis)


@asynccontextmanager
async def _watching(sidecar: Sidecar, reread: asyncio.Event) -> AsyncIterator[None]:
    """Looks after store and files while the sidecar serves; SIGHUP reads the files again."""
    await sidecar.store_watch.look()
    tasks = [
        asyncio.create_task(sidecar.store_watch.run(), name="store watch"),
        asyncio.create_task(sidecar.reloader.watch(), name="file watch"),
        asyncio.create_task(sidecar.census.run(), name="census"),
        asyncio.create_task(_reread(sidecar.reloader, reread), name="rereading"),
    ]
    try:
        yield
    finally:
        await end(*tasks)


async def _reread(reloader: Reloader, asked: asyncio.Event) -> None:
    """However often it was asked meanwhile, once more is enough."""
    while True:
        await asked.wait()
        asked.clear()
        await reloader.try_reload()
