"""Several processes on the same two ports, looked after as one: `workers: N`.

Each is a `sidecar serve` of its own; the kernel spreads connections over them (SO_REUSEPORT), the store makes
their counters one, and files in a folder make their metrics one. Here they are started, started again when
they die, told of signals, and stopped together. The embedded store belongs to this process.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from sidecar.composition import is_embedded
from sidecar.infrastructure.child_process import dies_with_us
from sidecar.infrastructure.config.loading import Configuration
from sidecar.listening import check_free
from sidecar.main import ports, store_url

#: Seconds before a process that died is started again: doubled by each that does not live that long.
BACKOFF_SECONDS = (0.1, 5.0)
#: What a process may take to end: it leaves, and answers what it has accepted.
STOP_SECONDS = 15.0
#: Where the metrics of all processes are; read by the library when it is imported.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_log = logging.getLogger("sidecar.workers")


async def supervise(configuration: Configuration, file: Path) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code, that of a process that cannot start at all.

    Raises `CannotListen`, and `StoreCannotStart` for the embedded store.
    """
    settings = configuration.settings
    for port in ports(settings):
        check_free(port)
    with _metrics_folder() as folder:
        if not is_embedded(settings):
            return await _Workers(settings.workers, file, folder, None).run()
        async with store_url(settings) as url:
            return await _Workers(settings.workers, file, folder, url).run()


@contextmanager
def _metrics_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sidecar-metrics-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Workers:
    def __init__(self, number: int, file: Path, folder: Path, store: str | None) -> None:
        self._number = number
        self._command = [sys.executable, "-m", "sidecar", "serve", "-c", str(file), "--worker"]
        self._command += ["--store", store] if store else []
        self._folder = folder
        self._running: dict[int, Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._tell, signal.SIGHUP)
        _log.info("starting", extra={"workers": self._number})
        keeping = [asyncio.create_task(self._keep(index)) for index in range(self._number)]
        stopped = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait([*keeping, stopped], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        self._tell(signal.SIGTERM)
        codes = await asyncio.gather(*keeping)
        stopped.cancel()
        return max(codes) if done - {stopped} else 0

    def _tell(self, number: signal.Signals) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _keep(self, index: int) -> int:
        """Keeps one process running; returns the exit code of one that says that it cannot."""
        pause, last = BACKOFF_SECONDS
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once(index)
            if self._stopping.is_set():
                break
            if 0 < code < 5:  # the configuration, an address or the store: another attempt fails as well
                return code
            if time.monotonic() - started > last:
                pause = BACKOFF_SECONDS[0]
            _log.error("a worker died", extra={"status": code, "restart_in_seconds": pause})
            try:
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            except TimeoutError:
                pause = min(2 * pause, last)
        return 0

    async def _run_once(self, index: int) -> int:
        environment = {**os.environ, METRICS_FOLDER: str(self._folder)}
        process = await asyncio.create_subprocess_exec(
            *self._command, env=environment, preexec_fn=dies_with_us(), start_new_session=True
        )
        self._running[index] = process
        waiting = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                process.terminate()
                await asyncio.wait([waiting], timeout=STOP_SECONDS)
            if not waiting.done():
                _log.error("a worker does not end and is killed", extra={"pid": process.pid})
                process.kill()
            return await waiting
        finally:
            stopping.cancel()
            mark_process_dead(process.pid, path=str(self._folder))  # type: ignore[no-untyped-call]
