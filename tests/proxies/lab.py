"""One real proxy with a recipe of `deploy/` unchanged, a real sidecar, and an application behind them."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.envoy_process import APP_PORT, SIDECAR_PORT, application, require_free
from tests.proxies.process import PROXY_PORT, Proxy, running
from tests.raw_http import Connection, Headers, Reply, ask
from tests.sidecar_process import SidecarProcess

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
    """All three, running."""

    proxy: Proxy
    fail_open: bool
    sidecar: SidecarProcess
    #: What the proxy has printed.
    log: Path
    #: The targets that the application was asked for.
    asked: Sequence[bytes] = ()

    def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        """A request to the proxy on a connection of its own."""
        return ask(PROXY_PORT, method, target, headers, body)

    def connect(self) -> Connection:
        return Connection(PROXY_PORT)


@contextmanager
def lab(
    proxy: Proxy, directory: Path, *, fail_open: bool = True, config: Mapping[str, Any] | None = None
) -> Iterator[Lab]:
    """Started in the order in which they need each other.

    The sidecar has `CONFIG`, over it what the proxy needs, over that `config`.
    """
    require_free(PROXY_PORT, SIDECAR_PORT, APP_PORT)
    asked = merged(merged(CONFIG, proxy.config), config or {})
    with (
        application() as heard,
        SidecarProcess(directory, asked) as sidecar,
        running(proxy, directory, fail_open=fail_open) as log,
    ):
        yield Lab(proxy, fail_open, sidecar, log, heard)


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
