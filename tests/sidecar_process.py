"""A real sidecar in a process of its own, started as its users start it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

import sidecar
from tests.parts import free_port
from tests.raw_http import Headers, Reply, ask

#: What a start or an end may take on a busy machine before it counts as failed.
PATIENCE_SECONDS = 30.0
#: Keys that `with_keys` configures.
ADMIN, VIEWER = "admin-key-of-the-tests", "viewer-key-of-the-tests"
#: What a configuration may read: nothing of it comes from the machine that runs the tests.
_READ = ("REDIS_URL", "LOG_LEVEL", "APP_ENV", "SIDECAR_ADMIN_KEY", "XDG_STATE_HOME")


def command(*arguments: str | Path) -> list[str]:
    """The command line of `sidecar …`."""
    return [sys.executable, "-m", "sidecar", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what a configuration reads, and with `more`."""
    kept = {name: value for name, value in os.environ.items() if name not in _READ}
    return (
        kept
        | {"PYTHONPATH": str(Path(sidecar.__file__).parents[1]), "PYTHONWARNINGS": "default::ResourceWarning"}
        | more
    )


class SidecarProcess:
    """`sidecar serve` with a configuration, between `start` and `stop`, or as a context manager.

    `config` is what stands in the file, completed by what is the same for all tests: `listen` with two free
    ports, an embedded store in `directory`, time enough for it, two admin keys (`ADMIN`, `VIEWER`).
    Started again it has the same ports, file and store. `variables` stand in its environment.
    """

    def __init__(
        self, directory: Path, config: Mapping[str, Any], *, variables: Mapping[str, str] | None = None
    ) -> None:
        self._config = _completed(config, directory)
        self._variables = variables or {}
        self.port = _port(self._config["listen"]["authz"])
        self.admin_port = _port(self._config["listen"]["admin"])
        self.file = directory / "sidecar.yaml"
        self._log_file = directory / "sidecar.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, ready: bytes = b"ready", seconds: float = PATIENCE_SECONDS) -> None:
        """Returns when `/ready` says so."""
        self.file.write_text(yaml.safe_dump(self._config, sort_keys=False))
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command("serve", "-c", self.file),
                cwd=self.file.parent,
                env=environment(**self._variables),
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + seconds
        while not self._is(ready):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"the sidecar does not become {ready.decode()}:\n{self.log}")
            time.sleep(0.01)

    def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        """One request to the data port."""
        return ask(self.port, method, target, headers, body)

    def evaluate(self, **asked: Any) -> Reply:
        body = json.dumps(asked).encode()
        return self.ask("POST", "/v1/evaluate", {"Content-Type": "application/json"}, body)

    def admin(self, method: str, target: str, body: Any = None, *, key: str | None = ADMIN) -> Reply:
        """One request to the admin port; `body` is sent as JSON, or as it is if it is bytes."""
        headers = {"X-Admin-Key": key} if key is not None else {}
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return ask(self.admin_port, method, target, headers, sent)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_file.read_text("utf-8")

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The log's entries with this message."""
        entries = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry["message"] == message]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Its exit code, when it has ended by itself."""
        assert self._process is not None
        code = self._process.wait(PATIENCE_SECONDS)
        self._process = None
        return code

    @property
    def errors(self) -> set[str]:
        """The messages of all errors in the log."""
        entries = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return {entry["message"] for entry in entries if entry["level"] == "ERROR"}

    def stop(self, *, expected: Collection[str] = ()) -> None:
        """SIGTERM; fails if it does not end well in time, or logged an error that is not `expected`."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"the sidecar does not stop:\n{self.log}")
        self._process = None
        if (
            code != 0
            or self.errors - set(expected)
            or "Traceback" in self.log
            or "ResourceWarning" in self.log
        ):
            pytest.fail(f"the sidecar ended with {code}, or something failed in it:\n{self.log}")

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.log)
            self.kill()
        elif self._process is not None:
            self.stop()

    def _is(self, word: bytes) -> bool:
        try:
            answer = self.ask("GET", "/ready")
        except OSError:
            return False
        return (answer.status, answer.body) == (200, word)


def _completed(config: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    store = {"url": f"embedded:{directory}/store", "timeout_ms": 5000}
    keys = [
        {"name": "ops", "key": ADMIN, "role": "admin"},
        {"name": "watcher", "key": VIEWER, "role": "viewer"},
    ]
    authz = free_port()
    while (admin := free_port()) == authz:
        pass
    # Only tests that stop one under load need it to leave slowly.
    listen = {"authz": f"127.0.0.1:{authz}", "admin": f"127.0.0.1:{admin}", "leave_seconds": 0}
    return {
        **config,
        "admin": {"keys": keys} | config.get("admin", {}),
        "store": store | config.get("store", {}),
        "listen": listen | config.get("listen", {}),
    }


def _port(address: str) -> int:
    """0 for a Unix socket."""
    return 0 if address.startswith("unix:") else int(address.rpartition(":")[2])
