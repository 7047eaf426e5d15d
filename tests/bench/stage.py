"""Servers to be measured, each on the core that is theirs; callers and store share the others.

One server at a time is asked, the others wait: they take turns on the same core.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.bench.load import Load, Outcome, apart, closed, expect, paced, percentile
from tests.bench.meters import Meter
from tests.envoy_process import listens
from tests.parts import StoreServer, free_port, require
from tests.sidecar_process import SidecarProcess, environment

PATIENCE_SECONDS = 30.0
CONNECTIONS, IDENTIFIERS = 32, 1_000
_ALL = sorted(os.sched_getaffinity(0))
#: With one core alone, all share it, and the throughput says little.
SERVER_CORES = frozenset(_ALL[:1])
OTHER_CORES = frozenset(_ALL[1:]) or SERVER_CORES

Figures = dict[str, list[float]]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Served:
    """A server that listens, and what to ask it."""

    name: str
    port: int
    pid: int
    requests: Sequence[bytes]
    stores: list[StoreServer] = field(default_factory=list)
    #: Of every answer.
    status: bytes = b"200"
    connections: int = CONNECTIONS

    def load(self, seconds: float, rate: float = 0.0) -> Load:
        return Load(
            port=self.port, requests=self.requests, connections=self.connections, seconds=seconds, rate=rate
        )

    def flood(self, seconds: float) -> dict[str, float]:
        """What a decision costs, and how many there are in a second, when callers wait for nothing else."""
        with Meter(self.pid, self.stores) as meter:
            outcome = expect(apart(OTHER_CORES, closed, self.load(seconds)), self.status)
        return {
            "cpu": 1e6 * meter.spent.server / outcome.answers,
            "store_cpu": 1e6 * meter.spent.store / outcome.answers,
            "calls": meter.spent.calls / outcome.answers,
            "per_second": outcome.per_second,
        }

    def everybody(self) -> None:
        """Each request once."""
        load = replace(self.load(PATIENCE_SECONDS * 10), answers=len(self.requests))
        expect(apart(OTHER_CORES, closed, load), self.status)

    def pace(self, seconds: float, rate: float) -> dict[str, float]:
        """How long callers wait at this rate, in milliseconds, and what a decision costs then."""
        with Meter(self.pid, self.stores) as meter:
            outcome = expect(apart(OTHER_CORES, paced, self.load(seconds, rate)), self.status)
        return waits(outcome) | {"cpu": 1e6 * meter.spent.server / outcome.answers}


def waits(outcome: Outcome) -> dict[str, float]:
    found = {f"p{100 * part:g}": 1e3 * percentile(outcome.latencies, part) for part in (0.5, 0.99, 0.999)}
    return found | {"max": 1e3 * max(outcome.latencies), "late": 1e3 * percentile(outcome.late, 0.99)}


class Stage:
    """Starts servers, and ends them all when it is left."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))

    def store(self, kind: str = "valkey", *, tcp: bool = False) -> StoreServer:
        with on(OTHER_CORES):
            return self._stack.enter_context(StoreServer(require(kind), tcp=tcp))

    def program(self, module: str, *arguments: str | Path) -> tuple[int, int]:
        """Port and process of one of our small programs, which is told its port first."""
        port = free_port()
        command = [sys.executable, "-m", f"tests.bench.{module}", str(port), *map(str, arguments)]
        with on(SERVER_CORES):
            pid = self._stack.enter_context(running(command, port))
        return port, pid

    def sidecar(self, config: Mapping[str, Any], url: str) -> SidecarProcess:
        process = self.prepared(config, url)
        self.begin(process)
        return process

    def prepared(self, config: Mapping[str, Any], url: str) -> SidecarProcess:
        """Not started."""
        own = self.directory / f"sidecar-{len(list(self.directory.iterdir()))}"
        own.mkdir()
        complete = {**config, "store": {"url": url, "timeout_ms": 1000}}
        return SidecarProcess(own, complete, variables={"PYTHONWARNINGS": ""})

    def begin(self, process: SidecarProcess, seconds: float = PATIENCE_SECONDS) -> None:
        """One that was prepared; it may take so long."""
        self._stack.callback(process.kill)
        with on(SERVER_CORES):
            process.start(seconds=seconds)

    def beside(self, what: AbstractContextManager[_T]) -> _T:
        """On the callers' core."""
        with on(OTHER_CORES):
            return self._stack.enter_context(what)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """What is started meanwhile runs on these, with all its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[int]:
    process = subprocess.Popen(command, env=environment(), cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"does not start: {command}")
            time.sleep(0.01)
        yield process.pid
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def gathered(rounds: Sequence[Mapping[str, float]]) -> Figures:
    """The same figures of several rounds."""
    return {name: [one[name] for one in rounds] for name in rounds[0]} if rounds else {}
