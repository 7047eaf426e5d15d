"""A store, a way to it that can fail, and a sidecar at its end that counts every request apart.

Each request has a number, and a counter of its own beside one that it shares with the others of its client:
so what was counted twice, or not at all, can be named.
"""

import os
import resource
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from redis import Redis

from sidecar.domain.identity import EVERYONE
from tests.parts import StoreServer, require
from tests.raw_http import request
from tests.sidecar_process import SidecarProcess, environment
from tests.store_proxy import StoreProxy

#: What its clients do without the store; each is named after that.
CLIENTS = ("allow", "deny", "local")
#: Of the client `local`, in a second; the others may have as many as they like.
LIMIT = 10
#: Nothing is given back while anything runs.
YEAR = 31_536_000
#: As the embedded store has it: what was answered was written, if not yet to the disk itself.
AOF = {"appendonly": "yes", "appendfsync": "everysec"}


def asked(number: int) -> bytes:
    """The request of this number; clients take turns."""
    return request("GET", f"/clients/{client_of(number)}/authz/x", {"X-Number": str(number)})


def client_of(number: int) -> str:
    return CLIENTS[number % len(CLIENTS)]


def _client(word: str) -> dict[str, Any]:
    each = {
        "id": "each",
        "route": "/*",
        "identifier_type": "header:x-number",
        "algorithm": "fixed_window",
        "limit": 5,
        "window_seconds": YEAR,
        "on_unavailable": word,
    }
    shared = each | {"id": "all", "identifier_type": "none", "limit": 10**9}
    if word == "local":
        shared |= {"algorithm": "sliding_window", "limit": LIMIT, "window_seconds": 1}
    return {"id": word, "rules": [each, shared]}


class Scene:
    """Between `begin` and `end` of a fault. `store` and `way` are there unless the store is embedded."""

    def __init__(self, sidecar: SidecarProcess, store: StoreServer | None, way: StoreProxy | None) -> None:
        self.sidecar = sidecar
        self._store = store
        self._way = way
        self._busy: tuple[threading.Event, threading.Thread] | None = None

    @property
    def store(self) -> StoreServer:
        assert self._store is not None
        return self._store

    @property
    def way(self) -> StoreProxy:
        assert self._way is not None
        return self._way

    def signal(self, number: signal.Signals, pid: int = 0) -> None:
        """To the store."""
        os.kill(pid or self.store.pid, number)

    def tell(self, *words: str | int) -> Any:
        """One command to the store, past the way to it."""
        with self._direct() as redis:
            return redis.execute_command(*words)  # type: ignore[no-untyped-call]

    def keep_telling(self, *words: str) -> None:
        """The same command again and again, until `stop_telling`."""
        enough = threading.Event()

        def tell() -> None:
            while not enough.wait(0.02):
                self.tell(*words)

        thread = threading.Thread(target=tell, name="telling")
        self._busy = enough, thread
        thread.start()

    def stop_telling(self) -> None:
        if self._busy:
            enough, thread = self._busy
            enough.set()
            thread.join()
            self._busy = None

    def counted(self) -> dict[str, dict[int, int]]:
        """By client: which requests are counted, and how often."""
        return {
            word: {int(key.rpartition("=")[2]): count for key, count in self._counts(word, "each").items()}
            for word in CLIENTS
        }

    def together(self, word: str) -> int:
        """What the counter says that all requests of a client share."""
        return sum(self._counts(word, "all").values())

    def _counts(self, client: str, rule: str) -> dict[str, int]:
        """Of fixed windows, which are kept as `index:count`; by key."""
        with self._direct() as redis:
            keys = list(redis.scan_iter(f"rl:v1:{{{client}}}:{rule}:*:{EVERYONE}*", count=10_000))
            values: list[Any] = redis.mget(keys) if keys else []
        return {key: int(value.partition(":")[2]) for key, value in zip(keys, values, strict=True)}

    @contextmanager
    def _direct(self) -> Iterator[Redis]:
        path = self._store.socket if self._store else embedded_socket(self.sidecar)
        with Redis(unix_socket_path=str(path), decode_responses=True, socket_timeout=30) as redis:
            yield redis


class Stage(Protocol):
    """Makes a scene."""

    def __call__(
        self,
        directory: Path,
        *,
        timeout_ms: int,
        embedded: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[Scene]: ...


@contextmanager
def scene(
    directory: Path, *, timeout_ms: int, embedded: bool = False, variables: Mapping[str, str] | None = None
) -> Iterator[Scene]:
    """Everything that is needed, started and ready."""
    config: dict[str, Any] = {"clients": [_client(word) for word in CLIENTS]}
    with ExitStack() as stack:
        store, way = None, None
        if not embedded:
            store = stack.enter_context(StoreServer(unlimited(directory), tcp=True, settings=AOF))
            way = stack.enter_context(StoreProxy(store.port))
        at = {"url": way.url} if way else {}
        config["store"] = {**at, "timeout_ms": timeout_ms}
        sidecar = SidecarProcess(directory, config, variables=variables)
        stack.callback(sidecar.kill)
        sidecar.start()
        made = Scene(sidecar, store, way)
        stack.callback(made.stop_telling)
        yield made
        if not embedded:  # a store that died is an error in the log of its sidecar
            sidecar.stop()


def unlimited(directory: Path) -> Path:
    """A program that runs the server, and has it told of a full disk instead of ended by a signal.

    A limit of a process on the size of its files stands in for a full disk: everybody can set one.
    """
    program = directory / "store.sh"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec '{require('valkey')}' \"$@\"\n")
    program.chmod(0o755)
    return program


def embedded_socket(sidecar: SidecarProcess) -> Path:
    """Where the embedded store of a sidecar listens."""
    note = sidecar.file.parent / "store" / "valkey" / "socket-directory"
    return Path(note.read_text("utf-8")) / "valkey.sock"


def an_hour_ahead(directory: Path) -> dict[str, str]:
    """Environment of a sidecar that takes the time for an hour later than it is."""
    place = directory / "ahead"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import time\n"
        "_seconds, _nanoseconds = time.time, time.time_ns\n"
        "time.time = lambda: _seconds() + 3600\n"
        "time.time_ns = lambda: _nanoseconds() + 3600 * 10**9\n"
    )
    return {"PYTHONPATH": f"{place}:{environment()['PYTHONPATH']}"}


def limit_files(pid: int, size: int) -> None:
    """No file of this process grows beyond so many bytes; -1: they may again."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
