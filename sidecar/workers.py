"""Several processes on the same two ports, looked after as one: `workers: N`.

Each is a `sidecar serve` of its own; the kernel spreads connections over them (SO_REUSEPORT), the store makes
their counters one, and files in a folder make their metrics one. Here they are started, started again when
they die, told of signals, and stopped together. The embedded store belongs to this process.
"""

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from prometheus_client.multiprocess import mark_process_dead

from sidecar.composition import is_embedded
from sidecar.infrastructure.child_process import dies_with_us, python
from sidecar.infrastructure.config.schema import Settings
from sidecar.listening import check_free
from sidecar.main import ports, set_by, store_url

#: Seconds before a process that died is started again: doubled by each that does not live that long.
BACKOFF_SECONDS = (0.1, 5.0)
#: What a process may take to end: it leaves, and each port answers what it has accepted.
STOP_SECONDS = 25.0
#: Where the metrics of all processes are; read by the library when it is imported.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Which of the files there are whose: those of a process that died are taken over by the one in its place.
METRICS_NAME = "SIDECAR_WORKER"
_METRICS_PREFIX = "sidecar-metrics-"
_log = logging.getLogger("sidecar.workers")


async def supervise(settings: Settings, file: Path) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Clients are the workers' own business.

    Raises `CannotListen`, and `StoreCannotStart` for the embedded store.
    """
    stop = set_by(signal.SIGTERM, signal.SIGINT)
    for port in ports(settings):
        await check_free(port)
    with _metrics_folder() as folder:
        if not is_embedded(settings):
            return await _Workers(file, folder, None, stop).run(settings.workers)
        async with store_url(settings) as url:
            return await _Workers(file, folder, url, stop).run(settings.workers)


@contextmanager
def _metrics_folder() -> Iterator[Path]:
    """One of our own, with a lock in it that ends with this process, however that ends."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=_METRICS_PREFIX))
    except FileNotFoundError:  # a container's disk may be read-only; what it shares in memory is not
        folder = Path(tempfile.mkdtemp(prefix=_METRICS_PREFIX, dir="/dev/shm"))
    try:
        with (folder / "new").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "new").rename(folder / "lock")  # nobody sees it unlocked
            _remove_abandoned(folder.parent)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """What those left behind that were killed."""
    for folder in parent.glob(f"{_METRICS_PREFIX}*"):
        try:
            with (folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # somebody's, who is alive, or not ours to look into
            continue


class _Workers:
    """What is wrong with configuration, addresses or store was found before any of them is started.

    So none is given up: one that cannot start is tried again, less and less often. The file may have been
    broken since, and the others go on with the last good one.
    """

    def __init__(self, file: Path, folder: Path, store: str | None, stopping: asyncio.Event) -> None:
        self._command = [*python(), "-m", "sidecar", "serve", "-c", str(file), "--worker"]
        self._command += ["--store", store] if store else []
        self._folder = folder
        self._running: dict[int, Process] = {}
        self._stopping = stopping

    async def run(self, number: int) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reread)
        _log.info("starting", extra={"workers": number})
        await asyncio.gather(*(self._keep(index) for index in range(number)))
        _log.info("all workers have ended")
        return 0

    def _reread(self) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGHUP)

    async def _keep(self, index: int) -> None:
        pause, last = BACKOFF_SECONDS
        while not self._stopping.is_set():
            started = monotonic()
            code = await self._run_once(index)
            if self._stopping.is_set():
                return
            if monotonic() - started > last:
                pause = BACKOFF_SECONDS[0]
            _log.error("a worker died", extra={"worker": index, "status": code, "restart_in_seconds": pause})
            await self._pause(pause)
            pause = min(2 * pause, last)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _run_once(self, index: int) -> int | str:
        """From its start to its end; returns its exit code, or why there was no start."""
        own = {METRICS_FOLDER: str(self._folder), METRICS_NAME: str(index)}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env={**os.environ, **own}, preexec_fn=_before_exec(), start_new_session=True
            )
        except OSError as error:  # too many processes, or no memory, at the moment
            return str(error)
        self._running[index] = process
        waiting = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await _end(process, waiting)
            return await waiting
        finally:
            stopping.cancel()
            # Of what it said about now, nothing holds any more; what it counted stays.
            mark_process_dead(str(index), path=str(self._folder))  # type: ignore[no-untyped-call]


async def _end(process: Process, waiting: "asyncio.Task[int]") -> None:
    process.terminate()
    await asyncio.wait([waiting], timeout=STOP_SECONDS)
    if not waiting.done():
        _log.error("a worker does not end and is killed", extra={"pid": process.pid})
        process.kill()


def _before_exec() -> Callable[[], None]:
    die = dies_with_us()

    def prepare() -> None:
        # Until a process listens to it, a SIGHUP would end it; it is about to read the files anyway.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if die:
            die()

    return prepare
