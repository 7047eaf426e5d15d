"""What the embedded store owns on disk: a private data directory, the lock on it, and a socket.

Counters are in the directory and outlive the process. The socket is elsewhere, since its path must be short,
and is gone when the process is.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

#: Seconds to wait for the lock: a server orphaned by a killed sidecar needs a moment to exit.
LOCK_SECONDS = 2.0

_SOCKET_PREFIX = "ratelimit-sidecar-"
_LOG_BYTES = 1_000_000


class StoreCannotStart(Exception):
    """The embedded store is not installed or does not start; the text is for the person who started it."""


class DataDirectory:
    """A subdirectory of `parent`, held by one process tree between `claim` and `release`.

    A subdirectory, because it can be made private (0700) without touching what may be a mounted volume, or
    `/tmp`. All errors are `StoreCannotStart`.
    """

    def __init__(self, parent: Path) -> None:
        self.path = parent / "valkey"
        self.log_file = self.path / "valkey.log"
        self._parent = parent
        self._lock: int | None = None
        self._socket: Path | None = None

    async def claim(self) -> None:
        try:
            self._make()
            self._lock = await self._take_lock()
            self._socket = self._make_socket_directory() / "valkey.sock"
        except OSError as error:
            raise StoreCannotStart(
                f"the embedded store cannot use {error.filename or self.path}: {error.strerror}"
                " (`store.url: embedded:/path` chooses another directory)"
            ) from error

    @property
    def lock(self) -> int:
        """The descriptor that holds the lock, for whoever shall hold it as well."""
        if self._lock is None:
            raise RuntimeError("the directory is not claimed")
        return self._lock

    @property
    def socket(self) -> Path:
        """Where the server listens."""
        if self._socket is None:
            raise RuntimeError("the directory is not claimed")
        return self._socket

    def release(self) -> None:
        """Gives up socket and lock, the data stays. Harmless without a claim."""
        if self._socket is not None:
            shutil.rmtree(self._socket.parent, ignore_errors=True)
            self._socket = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make(self) -> None:
        self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.path.chmod(0o700)
        if self.log_file.exists() and self.log_file.stat().st_size > _LOG_BYTES:
            self.log_file.unlink()
        self.log_file.touch(mode=0o600)

    async def _take_lock(self) -> int:
        """Two servers on one append-only file would destroy it: this is held until both we and ours end."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_SECONDS
        while not _locked(lock):
            if time.monotonic() > deadline:
                os.close(lock)
                raise StoreCannotStart(
                    f"another sidecar keeps its counters in {self._parent}: give this one a directory of"
                    " its own (`store.url: embedded:/path`), or both the same Redis (`store.url: redis://…`)"
                )
            await asyncio.sleep(0.05)
        return lock

    def _make_socket_directory(self) -> Path:
        """A socket's path has at most 107 bytes (macOS: 103), that of the data as many as it likes.

        Its name is noted beside the data, so that the next start removes what a killed sidecar left behind.
        """
        note = self.path / "socket-directory"
        with contextlib.suppress(OSError):
            stale = Path(note.read_text(encoding="utf-8"))
            if stale.name.startswith(_SOCKET_PREFIX):
                shutil.rmtree(stale, ignore_errors=True)
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > 60:
            parent = "/tmp"  # noqa: S108 - mkdtemp makes a name of its own, 0700
        made = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=parent))
        note.write_text(str(made), encoding="utf-8")
        return made


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's programs keep state: `$XDG_STATE_HOME/ratelimit-sidecar`, else `~/.local/state/…`."""
    state = environ.get("XDG_STATE_HOME", "")
    # A relative one is to be ignored, says the XDG specification.
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "ratelimit-sidecar"


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
