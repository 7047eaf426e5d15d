"""Running: the store, the ports and what is looked after beside them; serve, and drain.

Which objects there are, and how a configuration gets to them, is in `composition.py`.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from sidecar.composition import Sidecar, is_embedded
from sidecar.infrastructure.admin.api import admin_runner
from sidecar.infrastructure.config.loading import Configuration
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.http.server import data_runner
from sidecar.infrastructure.redis.connection import connect
from sidecar.infrastructure.redis.embedded import EmbeddedServer
from sidecar.listening import listening

#: When a connection that does not answer is closed. Decisions wait for `store.timeout_ms` only; but closing
#: at once would turn a slow moment of the store into a storm of new connections.
GIVE_UP_SECONDS = 1.0
#: How long the ports stay open after the sidecar was told to stop, so that proxies notice.
LEAVING_SECONDS = 0.5
_log = logging.getLogger("sidecar")


async def serve(
    configuration: Configuration,
    *,
    ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run until `stop` is set, or SIGTERM or SIGINT comes. `ready` is called once both ports are served.

    Raises `CannotListen`, and `StoreCannotStart` for the embedded store; a store elsewhere may be away.
    """
    stop = stop or _stop_on_signals()
    settings = configuration.settings
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_store_url(settings))
        counting = await stack.enter_async_context(_client(url, GIVE_UP_SECONDS))
        control = await stack.enter_async_context(_client(url, GIVE_UP_SECONDS))
        sidecar = Sidecar(configuration, counting, control)
        await stack.enter_async_context(_watching(sidecar))
        await stack.enter_async_context(
            listening(data_runner(sidecar.front.handle), settings.listen.authz_endpoint, "listen.authz")
        )
        await stack.enter_async_context(
            listening(
                admin_runner(sidecar.admin_routes, sidecar.access),
                settings.listen.admin_endpoint,
                "listen.admin",
            )
        )
        sidecar.readiness.serving = True
        _log.info("serving", extra={"authz": settings.listen.authz, "admin": settings.listen.admin})
        ready()
        await stop.wait()
        sidecar.readiness.serving = False
        _log.info("stopping; accepted requests are answered first")
        # Answers close their connections from now on; requests that are already on them still come in.
        await asyncio.sleep(LEAVING_SECONDS)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def _store_url(settings: Settings) -> AsyncIterator[str]:
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
async def _client(url: str, give_up_seconds: float) -> AsyncIterator[Redis]:
    redis = connect(url, give_up_seconds)
    try:
        yield redis
    finally:
        await redis.aclose()


@asynccontextmanager
async def _watching(sidecar: Sidecar) -> AsyncIterator[None]:
    """Looks after store and files while the sidecar serves; SIGHUP reads the files again."""
    await sidecar.store_watch.look()
    tasks = [
        asyncio.create_task(sidecar.store_watch.run(), name="store watch"),
        asyncio.create_task(sidecar.reloader.watch(), name="file watch"),
    ]
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(
        signal.SIGHUP, lambda: tasks.append(loop.create_task(sidecar.reloader.try_reload()))
    )
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
