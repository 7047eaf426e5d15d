"""Connections to the store, without the library's own retries.

A retry could charge a request again whose reply was lost, so nothing is sent twice here: what failed is said
as `StoreUnavailable`, once, at this edge.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from sidecar.application.ports import StoreUnavailable
from sidecar.infrastructure.redis.cluster import Address, Cluster
from sidecar.infrastructure.redis.first_answer import first_answer
from sidecar.infrastructure.store_nodes import StoreNodes, is_several, parse

Store = Redis | Cluster

#: Of one client to one server. Calls share one; beside it there are those that end, and those for what is
#: heard or asked of all servers.
MAX_CONNECTIONS = 16


def connect(url: str, give_up_seconds: float) -> Store:
    """A client for any `store.url` but `embedded:`; connects when first used.

    It has connections of its own, so nobody waits for those who use another one.

    After `give_up_seconds` without an answer a connection is closed, so that a late reply never reaches
    another caller.
    """
    if not is_several(url):
        return connect_to_one(url, give_up_seconds)
    nodes, options = parse(url), _options(give_up_seconds)
    made = _cluster if nodes.kind == "cluster" else _sentinel
    return made(nodes, options)


def connect_to_one(url: str, give_up_seconds: float) -> Redis:
    """The same for the URL of one server."""
    options = _options(give_up_seconds)
    pool = BlockingConnectionPool.from_url(
        url, max_connections=MAX_CONNECTIONS, timeout=give_up_seconds, **options
    )
    return Redis.from_pool(pool)


def _options(give_up_seconds: float) -> dict[str, Any]:
    return {
        "socket_timeout": give_up_seconds,
        "socket_connect_timeout": give_up_seconds,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "protocol": 2,
        # CLIENT SETINFO is newer than 6.2 and an ACL user may not run it.
        "driver_info": None,
    }


def _cluster(nodes: StoreNodes, options: dict[str, Any]) -> Cluster:
    def redis_at(address: Address) -> Redis:
        host, port = address
        pool = BlockingConnectionPool(
            connection_class=SSLConnection if nodes.tls else Connection,
            max_connections=MAX_CONNECTIONS,
            timeout=options["socket_timeout"],
            host=host,
            port=port,
            username=nodes.username,
            password=nodes.password,
            **_tls(nodes),
            **options,
        )
        return Redis.from_pool(pool)

    return Cluster(nodes.nodes, redis_at)


def _sentinel(nodes: StoreNodes, options: dict[str, Any]) -> Redis:
    tls = {"ssl": True, **_tls(nodes)} if nodes.tls else {}
    credentials = {
        "username": nodes.options.get("sentinel_username"),
        "password": nodes.options.get("sentinel_password"),
    }
    sentinels = _Sentinels(  # type: ignore[no-untyped-call]
        list(nodes.nodes), sentinel_kwargs={**credentials, **tls, **options}
    )
    pool = _PrimaryPool(  # type: ignore[no-untyped-call]
        nodes.service,
        sentinels,
        connection_class=_TlsPrimary if nodes.tls else _Primary,
        max_connections=MAX_CONNECTIONS,
        username=nodes.username,
        password=nodes.password,
        db=nodes.database,
        **_tls(nodes),
        **options,
    )
    client = Redis.from_pool(pool)
    pool.client = client
    return client


def _tls(nodes: StoreNodes) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: value for name, value in nodes.options.items() if name.startswith("ssl_")
    }
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"] == "true"
    return options


class _Sentinels(Sentinel):
    """The library's asks one after the other, each for as long as a connection may take: where the first one
    hangs, nobody waits for the end of that. And it loses some of them where several calls ask at once.
    """

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """The primary's address. Raises redis-py's `MasterNotFoundError`."""
        problems: list[str] = []
        asks = [partial(self._primary, one, service_name, problems) for one in self.sentinels]
        if found := await first_answer(asks):
            return found
        raise MasterNotFoundError(f"no sentinel names a primary {service_name!r}: {', '.join(problems)}")

    async def _primary(
        self, sentinel: Redis, service_name: str, problems: list[str]
    ) -> tuple[str, int] | None:
        try:
            known: Any = await sentinel.sentinel_masters()
        except (RedisError, OSError) as error:
            problems.append(f"{type(error).__name__}: {error}")
            return None
        state = known.get(service_name)
        if not state or not self.check_master_state(state, service_name):
            problems.append("one knows none that is well" if state else "one does not know the name")
            return None
        self.sentinels.sort(key=lambda one: one is not sentinel)  # it is asked first from now on
        return state["ip"], state["port"]


class _Demoted(Connection):
    """To what was the primary when it was opened: one that is no longer says READONLY, and is left."""

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        # Not the library's own, which makes a lost connection of it: READONLY says that nothing was done.
        return await Connection.read_response(self, *arguments, **options)


class _Primary(_Demoted, SentinelManagedConnection):
    pass


class _TlsPrimary(_Demoted, SentinelManagedSSLConnection):
    pass


class _PrimaryPool(SentinelConnectionPool):
    """Connections to whatever sentinels say is the primary; closes those to the sentinels, too."""

    client: Redis | None = None

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


async def close(store: Store) -> None:
    """Of a server that hangs there is nothing to wait for: over TLS it should say goodbye."""
    with suppress(RedisError, OSError):
        await store.aclose()


async def one_of(store: Store) -> Redis:
    """A server of it, to be asked for what is not about keys. Raises redis-py's errors."""
    if isinstance(store, Redis):
        return store
    if not (servers := await store.servers()):
        raise RedisConnectionError("no server of the cluster says who has which slots")
    return servers[0]


@contextmanager
def translated() -> Iterator[None]:
    """Turns what the library raises, and a deadline that passed, into `StoreUnavailable`."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise unavailable(error) from error


def unavailable(error: Exception) -> StoreUnavailable:
    """What a failure of the library's means."""
    if isinstance(error, TimeoutError | RedisTimeoutError):
        kind = "timeout"
    else:
        kind = "error" if isinstance(error, ResponseError) else "connection"
    return StoreUnavailable(f"{type(error).__name__}: {error}", kind)
