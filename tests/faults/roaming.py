"""Callers that look for somebody who answers: they leave who stops, and never ask the same thing twice."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter
from types import TracebackType
from typing import Self

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: How long all of the ports may be closed at once.
PATIENCE_SECONDS = 30.0


@dataclass
class Answered:
    """How many answers there were of which status, and how many of the 200 were decided by a rule."""

    statuses: dict[int, int] = field(default_factory=dict)
    limited: int = 0
    #: What happened where no answer came.
    failures: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        return sum(self.statuses.values()) + len(self.failures)


class Roaming:
    """Asks steadily while it is open.

    A caller whose answer closes the connection goes to the next port, as does one whom nobody lets in. A
    request is sent once: without an answer it is a failure.
    """

    def __init__(
        self, ports: Sequence[int], asked: bytes, *, per_second: float, connections: int = 8
    ) -> None:
        self._ports = ports
        self._asked = asked
        self._pause = connections / per_second
        self._connections = connections
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.answered = Answered()

    async def __aenter__(self) -> Self:
        for number in range(self._connections):
            ports = cycle(
                [*self._ports[number % len(self._ports) :], *self._ports[: number % len(self._ports)]]
            )
            late = number * self._pause / self._connections
            self._tasks.append(asyncio.create_task(self._keep_asking(ports, late)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _keep_asking(self, ports: "cycle[int]", late: float) -> None:
        due, connection = perf_counter() + late, None
        while not self._stopping.is_set():
            await asyncio.sleep(max(0.0, due - perf_counter()))
            due = max(due + self._pause, perf_counter())
            connection = connection or await _connected(ports)
            if not await self._ask(*connection):
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the next one may be asked on the same connection."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                writer.write(self._asked)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                status, fields = int(head.split()[1]), dict(_fields(head))
                await reader.readexactly(int(fields.get("content-length", 0)))
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.answered.failures.append(f"{type(error).__name__}: {error}")
            return False
        self.answered.statuses[status] = self.answered.statuses.get(status, 0) + 1
        self.answered.limited += status == 200 and "x-ratelimit-limit" in fields
        return fields.get("connection") != "close"


def _fields(head: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in head.splitlines()[1:] if line)
    return [(name, value.strip()) for name, _, value in pairs]


async def _connected(ports: "cycle[int]") -> Connection:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", next(ports))
            except ConnectionError:
                await asyncio.sleep(0.01)
