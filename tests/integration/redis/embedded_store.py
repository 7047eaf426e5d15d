"""An embedded store of a test's own, on the server it is given."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from sidecar.infrastructure.redis.embedded import EmbeddedServer


@asynccontextmanager
async def running(
    directory: Path, binary: Path, **options: Callable[[], None]
) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(directory, binary=binary, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def client(server: EmbeddedServer) -> Redis:
    return Redis.from_url(server.url, decode_responses=True)
