"""One real proxy with a recipe of `deploy/` unchanged, a real sidecar, its store, and an application."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.envoy_process import APP_PORT, SIDECAR_PORT, application, require_free
from tests.parts import StoreServer, require
from tests.proxies.process import PROXY_PORT, Proxy, running
from tests.raw_http import Connection, Headers, Reply, ask
from tests.sidecar_process import PATIENCE_SECONDS, SidecarProcess

HOUR = {"algorithm": "sliding_window", "window_seconds": 3600}
#: What a session, or an address, may do.
LIMITED, SHORT, BY_ADDRESS = "/api/videos", "/short", "/address"
LIMIT = 2
CONFIG: dict[str, Any] = {
    "listen": {"authz": f"127.0.0.1:{SIDECAR_PORT}"},
    "default_client": "c",
    "clients": [
        {
            "id": "c",
            "rules": [
                {"id": "videos", "route": LIMITED, "identifier_type": "session_id", "limit": LIMIT, **HOUR},
                {"id": "all", "route": "/*", "identifier_type": "session_id", "limit": 1000, **HOUR},
                {"id": "address", "route": BY_ADDRESS, "identifier_type": "ip", "limit": 3, **HOUR},
                {
                    "id": "short",
                    "route": SHORT,
                    "identifier_type": "session_id",
                    "limit": 1,
                    "window_seconds": 1,
                },
            ],
        }
    ],
}


@dataclass(frozen=True)
class Lab:
    """All of them, running."""

    proxy: Proxy
    fail_open: bool
    sidecar: SidecarProcess
    store: StoreServer
    #: What the proxy has printed.
    log: Path
    #: The targets that the application was asked for.
    asked: Sequence[bytes] = ()

    def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        """A request to the proxy on a connection of its own."""
        return ask(PROXY_PORT, method, target, headers, body)

    @contextmanager
    def without_store(self) -> Iterator[None]:
        """From the moment that the sidecar waits for it no more; afterwards it counts on."""
        self.store.stop()
        try:
            with ThreadPoolExecutor(5) as callers:
                while not self._breaker_is_open():
                    list(callers.map(self._count, range(5)))
            yield
        finally:
            self.store.start()
            self.until_it_counts()

    def until_it_counts(self) -> None:
        """After its start, or its store's: the first call may take a busy machine longer than it has."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "x-ratelimit-limit" not in self._count().headers:
            assert time.monotonic() < deadline, "the sidecar does not find its store"
            time.sleep(0.01)

    def _breaker_is_open(self) -> bool:
        page = self.sidecar.admin("GET", "/metrics", key=None).body
        return b"\nrate_limit_store_breakers_open 1.0\n" in page

    def _count(self, _: int = 0) -> Reply:
        return self.sidecar.ask("GET", "/authz/counts")

    def connect(self) -> Connection:
        return Connection(PROXY_PORT)


@dataclass(frozen=True)
class Background:
    """What is behind a proxy, or behind one after the other."""

    config: Mapping[str, Any]
    sidecar: SidecarProcess
    store: StoreServer
    #: The targets that the application was asked for.
    asked: list[bytes]

    def forget(self) -> None:
        """Nobody has asked for anything yet."""
        self.asked.clear()
        for client in self.config["clients"]:
            assert self.sidecar.admin("DELETE", f"/v1/clients/{client['id']}/counters").status == 200


class Backgrounds:
    """One at a time, which is kept as long as proxies need the same; `close` ends it."""

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._current: Background | None = None

    def of(self, config: Mapping[str, Any]) -> Background:
        if self._current is not None and self._current.config == config:
            self._current.forget()
            return self._current
        self.close()
        self._current = self._stack.enter_context(background(self._directory(), config))
        return self._current

    def close(self) -> None:
        self._current = None
        self._stack.close()


@contextmanager
def lab(
    proxy: Proxy,
    directory: Path,
    *,
    fail_open: bool = True,
    config: Mapping[str, Any] | None = None,
    shared: Backgrounds | None = None,
) -> Iterator[Lab]:
    """Started in the order in which they need each other; what is `shared` may have been started before.

    The sidecar has `CONFIG`, over it what the proxy needs, over that `config`.
    """
    asked = merged(merged(CONFIG, proxy.config), config or {})
    with ExitStack() as own:
        behind = shared.of(asked) if shared else own.enter_context(background(directory, asked))
        log = own.enter_context(running(proxy, directory, fail_open=fail_open))
        yield Lab(proxy, fail_open, behind.sidecar, behind.store, log, behind.asked)


@contextmanager
def background(directory: Path, config: Mapping[str, Any]) -> Iterator[Background]:
    """With a sidecar that has this configuration."""
    require_free(PROXY_PORT, SIDECAR_PORT, APP_PORT)
    kept = {"appendonly": "yes"}
    with StoreServer(require("valkey"), settings=kept) as store, application() as heard:
        # No longer than the recipes' proxies wait: what comes later is nothing that they would see.
        stored = {"url": store.url, "timeout_ms": 200}
        with SidecarProcess(directory, merged({"store": stored}, config)) as sidecar:
            yield Background(config, sidecar, store, heard)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, everything else is replaced."""
    both = dict(under)
    for key, value in over.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def a_session() -> dict[str, str]:
    """The header that makes whoever sends it a caller of its own."""
    return {"X-Session-Id": uuid.uuid4().hex}


def by_address(laboratory: Lab, *names: str) -> list[int]:
    """The statuses of four requests that claim four addresses, in headers of these names."""
    claims = (dict.fromkeys(names, f"9.9.9.{n}") for n in range(4))
    return [laboratory.ask("GET", BY_ADDRESS, a_session() | claim).status for claim in claims]
