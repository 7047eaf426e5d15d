"""Playing a fault under a steady load, and what came of it."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from tests.faults.rows import Fault
from tests.faults.scene import CLIENTS, Scene, an_hour_ahead, asked
from tests.parts import until
from tests.steady_load import Answer, SteadyLoad

CONNECTIONS = 8
#: So long it goes well before and after.
BEFORE_SECONDS, AFTER_SECONDS = 0.3, 0.3
#: As many decisions in a row by the store as show that it is back.
BACK = 30
_OPENED = "the store does not answer: requests are decided without it, and do not wait"
_CLOSED = "the store answers again: requests are counted there"
_GONE, _CAME = "the store is away", "the store is reachable"


def reason(answer: Answer) -> str:
    """What an answer of the data port says about how it was decided."""
    match answer.status, answer.degraded:
        case 200, False:
            return "allowed"
        case 429, False:
            return "quota_exceeded"
        case ((200 | 503), True):
            return f"storage_unavailable ({answer.status})"
        case 429, True:
            return "local_quota_exceeded"
    return f"status {answer.status}"


@dataclass
class Played:
    """A fault that was over at `ended`, and what was answered and counted."""

    fault: Fault
    begun: float = 0.0
    ended: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    counted: dict[str, dict[int, int]] = field(default_factory=dict)
    #: What each client's counter of all its requests says.
    together: dict[str, int] = field(default_factory=dict)
    #: Whether `/ready` said so during it.
    said_degraded: bool = False
    #: During it: metrics of one sample each.
    metrics: dict[str, float] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> Counter[str]:
        return Counter(map(reason, self.answers))

    @property
    def by_store(self) -> set[int]:
        """Requests that the store has charged, by what was answered."""
        return {answer.number for answer in self.answers if reason(answer) == "allowed"}

    @property
    def without_store(self) -> set[int]:
        return {answer.number for answer in self.answers if answer.degraded}

    @property
    def charged(self) -> dict[int, int]:
        """Requests that are counted in the store, and how often."""
        return {number: times for counts in self.counted.values() for number, times in counts.items()}

    @property
    def twice(self) -> list[int]:
        return [number for number, times in self.charged.items() if times != 1]

    @property
    def lost(self) -> set[int]:
        """Charged by what was answered, and not counted any more, although nothing may be lost."""
        return {
            answer.number
            for answer in self.answers
            if reason(answer) == "allowed"
            and answer.number not in self.charged
            and not self.begun - self.fault.loses_seconds < answer.came < self.ended
        }

    @property
    def gone(self) -> int:
        """Charged by what was answered, and not counted any more."""
        return len(self.by_store - self.charged.keys())

    @property
    def stood(self) -> set[int]:
        """Charged although the answer was made without the store: its reply had not come."""
        return self.charged.keys() - self.by_store

    @property
    def recovered_seconds(self) -> float:
        """From the end of the fault to the last answer without the store."""
        late = [answer.came for answer in self.answers if answer.degraded and answer.sent > self.ended]
        return max(late, default=self.ended) - self.ended

    def percentile_ms(self, share: float) -> float:
        """Of the answers to what was asked during the fault."""
        taken = sorted(1000 * (a.came - a.sent) for a in self.answers if self.begun <= a.sent < self.ended)
        return taken[max(0, math.ceil(share * len(taken)) - 1)] if taken else 0.0


async def play(fault: Fault, directory: Path, *, seconds: float, per_second: float) -> Played:
    """The fault for so many seconds under so many requests; fails if the store does not come back."""
    variables = an_hour_ahead(directory) if fault.ahead else None
    with fault.stage(
        directory, timeout_ms=fault.timeout_ms, embedded=fault.embedded, variables=variables
    ) as stage:
        load = SteadyLoad([stage.sidecar.port], asked=asked, connections=CONNECTIONS, per_second=per_second)
        played = Played(fault, answers=load.answers[0])
        async with load:
            await back(load.answers[0])
            await asyncio.sleep(BEFORE_SECONDS)
            await _break(stage, played, seconds)
            await back(load.answers[0])
            await until(lambda: stage.sidecar.ask("GET", "/ready").body == b"ready", "it is ready again")
            await asyncio.sleep(AFTER_SECONDS)
        _look_back(stage, played)
    return played


async def _break(stage: Scene, played: Played, seconds: float) -> None:
    fault, played.begun = played.fault, perf_counter()
    await asyncio.to_thread(fault.begin, stage, seconds)
    while perf_counter() < played.begun + 0.8 * seconds:
        ready = await asyncio.to_thread(stage.sidecar.ask, "GET", "/ready")
        played.said_degraded = played.said_degraded or ready.body == b"degraded"
        await asyncio.sleep(0.02)
    page = await asyncio.to_thread(stage.sidecar.admin, "GET", "/metrics", key=None)
    played.metrics = _metrics(page.body.decode())
    await asyncio.sleep(max(0.0, played.begun + seconds - perf_counter()))
    await asyncio.to_thread(fault.end, stage)
    played.ended = perf_counter()


async def back(answers: Sequence[Answer]) -> None:
    """Until the store decides again, without an exception."""
    mark = len(answers)

    def is_back() -> bool:
        last = answers[max(mark, len(answers) - BACK) :]
        return len(last) == BACK and not any(answer.degraded for answer in last)

    await until(is_back, "the store decides again")


def _look_back(stage: Scene, played: Played) -> None:
    played.counted = stage.counted()
    played.together = {word: stage.together(word) for word in CLIENTS if word != "local"}
    messages = [
        (entry["time"], message)
        for message in (_OPENED, _CLOSED, _GONE, _CAME)
        for entry in stage.sidecar.logged(message)
    ]
    in_order = [message for _, message in sorted(messages)]
    played.turns = ["opened" if m == _OPENED else "closed" for m in in_order if m in (_OPENED, _CLOSED)]
    played.looks = ["gone" if m == _GONE else "came" for m in in_order if m in (_GONE, _CAME)]


def _metrics(page: str) -> dict[str, float]:
    samples = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples if "{" not in name}
