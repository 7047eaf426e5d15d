"""Clusters and sentinels of real servers on loopback, made with nothing but the servers themselves."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.parts import StoreServer, free_port

#: After so many milliseconds without an answer a server counts as failed.
FAILED_MS = 500
_NO_RETRY = Retry(NoBackoff(), 0)
#: A replica is not kept waiting for others to come (5 s).
_AT_ONCE = {"repl-diskless-sync-delay": "0"}
#: What the sentinels call the primary.
NAME = "main"


class ClusterServers:
    """Primaries that share the slots evenly, then their replicas, one after the other."""

    def __init__(
        self,
        binary: Path,
        *,
        primaries: int = 3,
        replicas: int = 3,
        host: str = "127.0.0.1",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._host = host
        self._primaries = primaries
        self.servers = [
            _ClusterServer(binary, {"bind": host, **(settings or {})}) for _ in range(primaries + replicas)
        ]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{self._bracketed}:{server.port}" for server in self.servers)

    def start(self) -> None:
        """Returns when each of them says that all is well."""
        for server in self.servers:
            server.start()
        for one, other in combinations(self.servers, 2):  # gossip would tell them, later
            ask(one, "CLUSTER", "MEET", self._host, other.port)
        bounds = [REDIS_CLUSTER_HASH_SLOTS * n // self._primaries for n in range(self._primaries + 1)]
        primaries = self.servers[: self._primaries]
        for server, first, end in zip(primaries, bounds, bounds[1:], strict=False):
            ask(server, "CLUSTER", "ADDSLOTS", *range(first, end))
        for number, server in enumerate(self.servers[self._primaries :]):
            follow(server, identity(primaries[number % self._primaries]))
        wait(self.is_complete, "the cluster is formed")

    def primary_of(self, tag: str, *, without: StoreServer | None = None) -> StoreServer:
        """Whoever has the keys with this hash tag, as most see it; one may be left `without` being asked."""
        slot = key_slot(tag.encode())
        asked = [server for server in self.servers if server is not without]
        answers = [port for server in asked if (port := self._owner(server, slot))]
        port = max(set(answers), key=answers.count)
        return next(server for server in self.servers if server.port == port)

    def agree(self, tag: str, owner: StoreServer) -> bool:
        """Whether all say that it has the keys with this tag."""
        slot = key_slot(tag.encode())
        return all(self._owner(server, slot) == owner.port for server in self.servers)

    def give(self, tag: str, owner: StoreServer) -> None:
        """Says to everybody who is a primary that this one has the slot now, to the new owner first."""
        slot = key_slot(tag.encode())
        primaries = [server for server in self.servers if "master" in myself(server)]
        for server in (owner, *(one for one in primaries if one is not owner)):
            ask(server, "CLUSTER", "SETSLOT", slot, "NODE", identity(owner))

    @contextmanager
    def joined(self, binary: Path) -> Iterator[StoreServer]:
        """With one server more, which has no slots."""
        with _ClusterServer(binary, {"bind": self._host}) as server:
            for other in self.servers:
                ask(server, "CLUSTER", "MEET", self._host, other.port)
            known = identity(server)
            wait(lambda: all(known in nodes(one) for one in self.servers), "it is known")
            wait(lambda: "cluster_state:ok" in ask(server, "CLUSTER", "INFO").decode(), "it is well")
            yield server
            for other in self.servers:
                ask(other, "CLUSTER", "FORGET", known)

    def replica_of(self, primary: StoreServer) -> StoreServer:
        wanted = identity(primary)
        return next(server for server in self.servers if f"slave {wanted} " in myself(server))

    def remove(self) -> None:
        for server in self.servers:
            server.remove()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def _bracketed(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    def _owner(self, server: StoreServer, slot: int) -> int | None:
        for first, last, primary, *_ in slots(server):
            if first <= slot <= last:
                return int(primary[1])
        return None

    def is_complete(self) -> bool:
        """Whether each of them says that all is well with all."""
        return all(map(self._sees_all, self.servers))

    def _sees_all(self, server: StoreServer) -> bool:
        is_well = "cluster_state:ok" in ask(server, "CLUSTER", "INFO").decode()
        named = {owner[1] for _, _, *owners in slots(server) for owner in owners}
        return is_well and (len(self.servers) == 1 or named == {one.port for one in self.servers})


class _ClusterServer(StoreServer):
    def __init__(self, binary: Path, settings: Mapping[str, str]) -> None:
        cluster = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(FAILED_MS),
            # A replica takes over however long it heard nothing: tests are not about that.
            "cluster-replica-validity-factor": "0",
            "cluster-allow-replica-migration": "no",
        }
        super().__init__(binary, tcp=True, settings={**cluster, **_AT_ONCE, **settings})
        self.port = _port_with_bus()


class SentinelServers:
    """A primary, its replicas, and three sentinels that agree by two; `more` is written into
    their files, `password` what is said to them."""

    def __init__(
        self,
        binary: Path,
        *,
        replicas: int = 2,
        settings: Mapping[str, str] | None = None,
        more: str = "",
        password: str | None = None,
    ) -> None:
        self._password = password
        self.primary, *self.replicas = (
            StoreServer(binary, tcp=True, settings={**_AT_ONCE, **(settings or {})})
            for _ in range(1 + replicas)
        )
        self.sentinels = [_SentinelServer(binary, self.primary.port, more) for _ in range(3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{NAME}"

    @property
    def servers(self) -> list[StoreServer]:
        return [self.primary, *self.replicas]

    def start(self) -> None:
        """Returns when the sentinels know each other and all replicas."""
        for server in self.servers:
            server.start()
        for replica in self.replicas:
            ask(replica, "REPLICAOF", "127.0.0.1", self.primary.port)
        # Before the sentinels come, who ask the primary for its replicas only each ten seconds.
        wait(lambda: all(map(is_linked, self.replicas)), "the replicas follow their primary")
        for sentinel in self.sentinels:
            sentinel.start()
        wait(self.is_complete, "the sentinels are ready")

    def current(self) -> StoreServer:
        """The primary, by the first sentinel."""
        _, port = ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return next(server for server in self.servers if server.port == int(port))

    def remove(self) -> None:
        for server in [*self.sentinels, *self.servers]:
            server.remove()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def is_complete(self) -> bool:
        """Whether each sentinel says that all is well with all."""
        return all(map(self._sees_all, self.sentinels))

    def _sees_all(self, sentinel: StoreServer) -> bool:
        flat = ask(sentinel, "SENTINEL", "MASTER", NAME, password=self._password)
        state = dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else flat
        number = {_text(name): _text(value) for name, value in state.items()}
        return (number["num-slaves"], number["num-other-sentinels"], number["flags"]) == (
            str(len(self.replicas)),
            "2",
            "master",
        )


class _SentinelServer(StoreServer):
    def __init__(self, binary: Path, primary_port: int, more: str) -> None:
        super().__init__(binary, tcp=True)
        self._file = self.directory / "sentinel.conf"
        ports = f"port 0\ntls-port {self.port}" if "tls-cert-file" in more else f"port {self.port}"
        self._file.write_text(
            f"{ports}\nbind 127.0.0.1\nunixsocket {self.socket}\n"
            f"dir {self.directory}\nlogfile {self.directory}/log\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary_port} 2\n"
            f"sentinel down-after-milliseconds {NAME} {FAILED_MS}\n"
            f"sentinel failover-timeout {NAME} 4000\n{more}\n"
        )

    def _command(self) -> list[str]:
        return [str(self._binary), str(self._file), "--sentinel"]


def ask(server: StoreServer, *words: str | bytes | int, password: str | None = None) -> Any:
    """One command over its Unix socket."""
    with over_socket(server, password) as redis:
        return redis.execute_command(*words)


def over_socket(server: StoreServer, password: str | None = None) -> Redis:
    # One that is stopped takes connections all the same.
    return Redis(unix_socket_path=str(server.socket), password=password, socket_timeout=5, retry=_NO_RETRY)


def is_linked(replica: StoreServer) -> bool:
    return b"master_link_status:up" in _info(replica)


def _info(server: StoreServer) -> bytes:
    with over_socket(server) as redis:
        redis.response_callbacks.pop("INFO", None)
        return bytes(redis.execute_command("INFO", "replication"))


def wait(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Like `tests.parts.until`, for fixtures, which have no event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s in vain: {what}")
        time.sleep(0.01)


def identity(server: StoreServer) -> str:
    return _text(ask(server, "CLUSTER", "MYID"))


def myself(server: StoreServer) -> str:
    """The line of `CLUSTER NODES` about the server itself."""
    return next((line for line in nodes(server).splitlines() if "myself" in line), "")


def nodes(server: StoreServer) -> str:
    """`CLUSTER NODES`; nothing of one that is not there."""
    try:
        return _text(ask(server, "CLUSTER", "NODES"))
    except RedisError:
        return ""


def slots(server: StoreServer) -> list[Any]:
    """`CLUSTER SLOTS`; nothing of one that is not there."""
    try:
        with over_socket(server) as redis:
            redis.response_callbacks.pop("CLUSTER", None)
            return list(redis.execute_command("CLUSTER", "SLOTS"))
    except RedisError:
        return []


def follow(server: StoreServer, primary: str) -> None:
    """Makes it a replica, once it has heard of the primary."""

    def replicates() -> bool:
        try:
            ask(server, "CLUSTER", "REPLICATE", primary)
        except RedisError:
            return False
        return True

    wait(replicates, "a replica knows its primary")


def _text(stored: Any) -> str:
    return stored.decode() if isinstance(stored, bytes) else str(stored)


def _port_with_bus() -> int:
    """A port that is free together with that of the cluster's bus, ten thousand above."""
    while True:
        port = free_port()
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port + 10_000))
        except (OSError, OverflowError):
            continue
        return port
