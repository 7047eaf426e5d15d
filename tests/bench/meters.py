"""What servers spend, read from /proc and from the store itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis
from redis.exceptions import ConnectionError as Gone

from tests.parts import StoreServer

_SCRIPT_CALLS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_evalsha_ro", "cmdstat_eval_ro", "cmdstat_fcall")


@dataclass(frozen=True)
class Spent:
    """CPU seconds of the asked servers and of their stores, and the calls that the stores got."""

    server: float = 0.0
    store: float = 0.0
    calls: int = 0


class Meter:
    """As a context manager; afterwards `spent` is what went on between."""

    def __init__(self, pid: int, stores: list[StoreServer]) -> None:
        self._pid, self._stores = pid, stores
        self.spent = Spent()

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now, then = self._now(), self._before
        self.spent = Spent(now.server - then.server, now.store - then.store, now.calls - then.calls)

    def _now(self) -> Spent:
        stores = self._stores
        return Spent(
            sum(map(cpu_seconds, family(self._pid))),
            sum(cpu_seconds(store.pid) for store in stores),
            sum(map(script_calls, stores)),
        )


def cpu_seconds(pid: int) -> float:
    """What the threads of a process have run, to the nanosecond: `stat` counts in hundredths of a second."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def family(pid: int) -> list[int]:
    """The process and those that it started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(one for task in tasks for child in task.read_text().split() for one in family(int(child)))]


def resident(pid: int) -> int:
    """Bytes of memory of the process and those that it started."""
    pages = (int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(pid))
    return sum(pages) * 4096


@contextmanager
def client(store: StoreServer) -> Iterator[Any]:
    """Redis's own client, of which the types say little."""
    with Redis(unix_socket_path=str(store.socket)) as connection:
        yield connection


def script_calls(store: StoreServer) -> int:
    """Calls of scripts. What scripts do within is counted by Redis as commands, too, and left out here."""
    try:
        with client(store) as connection:
            said = connection.info("commandstats")
    except Gone:
        return 0
    return sum(said[name]["calls"] for name in _SCRIPT_CALLS if name in said)


def used_memory(store: StoreServer) -> int:
    with client(store) as connection:
        return int(connection.info("memory")["used_memory"])
