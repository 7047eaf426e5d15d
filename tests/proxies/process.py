"""A real proxy in a process of its own, from the moment it listens."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.envoy_process import listens
from tests.parts import require
from tests.sidecar_process import PATIENCE_SECONDS

DEPLOY = Path(__file__).parents[2] / "deploy"
#: As all files of `deploy/` have them; the sidecar and the application are where envoy.yaml has them, too.
PROXY_PORT = 10000

#: What the sidecar says with a refusal.
REFUSAL_HEADERS = (
    "Cache-Control",
    "Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Rule",
)


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """How to run one proxy in front of sidecar and application."""

    name: str
    #: The program, as `parts.require` finds it.
    program: str
    #: From the program, an empty working directory, and whether requests pass without the sidecar, to the
    #: command that runs the proxy in the foreground in that directory.
    command: Callable[[Path, Path, bool], list[str]]
    #: Whether it does what its configuration says; not every proxy does from the moment it listens.
    ready: Callable[[], bool] = lambda: listens(PROXY_PORT)
    #: What the sidecar's configuration needs for it.
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    #: Whether the headers of an allowed request reach the client.
    success_headers: bool = True
    #: And those of an allowed WebSocket handshake.
    upgrade_headers: bool = True
    #: Whether requests can pass without the sidecar.
    can_fail_open: bool = True
    #: The headers of a refusal that reach the client, and the content type of its body.
    refusal_headers: tuple[str, ...] = REFUSAL_HEADERS
    refusal_type: str = "application/problem+json"
    #: What is answered where requests do not pass without the sidecar.
    down_status: int = 503
    kept_while_down: bool = True
    #: What a target of 60 kB gets, and whether its connection is kept.
    long_target: tuple[int, bool] = (200, True)
    #: Whether the connection is kept where a POST of 2 MB is refused, and where a WebSocket is.
    kept_after_refused_body: bool = True
    kept_after_refused_upgrade: bool = True


@contextmanager
def running(proxy: Proxy, directory: Path, *, fail_open: bool = True) -> Iterator[Path]:
    """Yields the file with everything that the proxy prints."""
    log_file = directory / f"{proxy.name}.log"
    command = proxy.command(require(proxy.program), directory, fail_open)
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not proxy.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{proxy.name} does not start:\n{log_file.read_text()}")
            time.sleep(0.01)
        yield log_file
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
