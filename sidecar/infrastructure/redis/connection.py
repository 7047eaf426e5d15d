"""Connections to the store, without the library's own retries.

A retry could charge a request again whose reply was lost, so nothing is sent twice here: what failed is said
as `StoreUnavailable`, once, at this edge.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sidecar.application.ports import StoreUnavailable

#: Connections of one process; requests travel together, so decisions need only a few.
MAX_CONNECTIONS = 16


def connect(url: str, give_up_seconds: float, max_connections: int = MAX_CONNECTIONS) -> "Redis":
    """A client for a `redis://`, `rediss://` or `unix://` URL; connects when first used.

    It has connections of its own, so nobody waits for those who use another one.

    After `give_up_seconds` without an answer a connection is closed, so that a late reply never reaches
    another caller.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=give_up_seconds,
        socket_timeout=give_up_seconds,
        socket_connect_timeout=give_up_seconds,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        protocol=2,
        # CLIENT SETINFO is newer than 6.2 and an ACL user may not run it.
        driver_info=None,
    )
    return Redis.from_pool(pool)


@contextmanager
def translated() -> Iterator[None]:
    """Turns what the library raises, and a deadline that passed, into `StoreUnavailable`."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailable(f"{type(error).__name__}: {error}") from error
