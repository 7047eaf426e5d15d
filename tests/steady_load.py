"""A bounded, steady load on several data ports, and what was answered when."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from types import TracebackType
from typing import Self

from tests.parts import until
from tests.raw_http import request


@dataclass(frozen=True, slots=True)
class Answer:
    """When a request was sent and answered (`perf_counter`), and with what; `limit` is its header.

    `number` says which request it was, `degraded` whether it was decided without the store.
    """

    sent: float
    came: float
    status: int
    limit: int | None
    number: int = 0
    degraded: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether it was decided by a rule."""
        return self.status in (200, 429) and self.limit is not None


class SteadyLoad:
    """Asks on each port while it is open, on a few connections that are kept.

    Every request is the same, or what `asked` makes of its number. One that gets no answer is a failure:
    leaving raises it.
    """

    def __init__(
        self,
        ports: Sequence[int],
        *,
        target: str = "/authz/load",
        asked: Callable[[int], bytes] | None = None,
        connections: int = 2,
        per_second: float = 100.0,
    ) -> None:
        self._ports = ports
        same = request("GET", target)
        self._asked = asked or (lambda number: same)
        self._numbers = count()
        self._connections = connections
        self._pause = connections / per_second
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        #: For each port, in the order in which they came.
        self.answers: list[list[Answer]] = [[] for _ in ports]

    def mark(self) -> list[int]:
        """How many answers there are from each port now, for `enforced`."""
        return [len(each) for each in self.answers]

    def enforced(self, number: int, limit: int, mark: int) -> Answer | None:
        """The first answer by this limit since a mark, from the port of this number."""
        return next((one for one in self.answers[number][mark:] if one.limit == limit), None)

    async def enforces(self, number: int, limit: int, mark: int, seconds: float) -> Answer:
        """Waits for the first answer by this limit since a mark."""
        await until(
            lambda: self.enforced(number, limit, mark) is not None,
            f"port {number} enforces a limit of {limit}",
            seconds=seconds,
        )
        first = self.enforced(number, limit, mark)
        assert first is not None
        return first

    def outdated(self, number: int, limit: int, first: Answer) -> Iterator[Answer]:
        """Answers by another limit to what was asked after the first one by this limit had come."""
        for one in self.answers[number]:
            if one.sent > first.came and one.limit != limit:
                yield one

    def without_limiting(self) -> list[Answer]:
        return [one for each in self.answers for one in each if not one.is_limited]

    async def __aenter__(self) -> Self:
        for number, port in enumerate(self._ports):
            for connection in range(self._connections):
                late = connection * self._pause / self._connections
                self._tasks.append(asyncio.create_task(self._keep_asking(number, port, late)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _keep_asking(self, number: int, port: int, late: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        due = perf_counter() + late
        while not self._stopping.is_set():
            await asyncio.sleep(max(0.0, due - perf_counter()))
            async with asyncio.timeout(10):
                self.answers[number].append(await self._ask(reader, writer))
            # What a busy moment has held up is not made up for.
            due = max(due + self._pause, perf_counter())
        writer.close()
        await writer.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        number, sent = next(self._numbers), perf_counter()
        writer.write(self._asked(number))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        came = perf_counter()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        await reader.readexactly(int(fields["content-length"]))
        limit, degraded = fields.get("x-ratelimit-limit"), "x-ratelimit-degraded" in fields
        return Answer(sent, came, int(head.split()[1]), int(limit) if limit else None, number, degraded)
