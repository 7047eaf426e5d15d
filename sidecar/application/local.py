"""Limits without the store: each process counts for itself, by its share of the limit.

`on_unavailable: local` holds the same algorithms to `max(1, floor(limit / live processes))` in this process's
memory, so that all processes together admit no more than the limit, or one unit each.

It begins with nothing, since what the store has counted is not known here. What was counted here is kept
while the store is back: one that comes and goes does not give everybody another share each time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sidecar.domain.counters import MemoryCounters, Room
from sidecar.domain.decision import Check, Counted

#: For so long the store has to name fewer processes before it is believed. One that came back without its
#: data has heard of all again by then; one that comes and goes would else give each process the whole limit.
SETTLE_SECONDS = 3.0
#: What is kept, at the worst about 200 MB; beyond it those are forgotten that were charged longest ago.
ROOM = Room(counters=100_000, numbers=4_000_000)


def steady_clock() -> Callable[[], int]:
    """Microseconds since the epoch, as the store counts them, by what this machine takes for now.

    Later corrections of that are left out: set back by an hour, it would keep limits used up for as long.
    """
    begun = time.time_ns() - time.monotonic_ns()
    return lambda: (begun + time.monotonic_ns()) // 1000


class Sharing:
    """How many processes share each limit, by what the store says of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: As many as there were when the store was last there.
        self.processes = 1
        self._clock = clock
        #: Since when it names fewer, and the most that it has named since then.
        self._fewer: tuple[float, int] | None = None

    def told(self, number: int) -> None:
        """What the store says now."""
        if number >= self.processes:
            self.processes, self._fewer = number, None
            return
        since, most = self._fewer or (self._clock(), 0)
        self._fewer = since, max(most, number)
        if self._clock() - since >= SETTLE_SECONDS:
            self.processes, self._fewer = max(most, number), None

    def store_away(self) -> None:
        """What it said last may have been too early to be true."""
        self._fewer = None


class LocalCounters:
    """What this process admits for rules that are `local`: its share of each limit."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self.sharing = Sharing()
        self._clock = clock or steady_clock()
        self._counters = MemoryCounters(room=ROOM, coarse=True)

    def hit(self, checks: Sequence[Check], *, charge: bool) -> tuple[list[Check], Counted]:
        """The checks with this process's share of their limits, and what they say."""
        shared = [self._shared(check) for check in checks]
        return shared, self._counters.hit(shared, self._clock(), charge=charge)

    def _shared(self, check: Check) -> Check:
        return replace(check, limit=self._share(check.limit), capacity=self._share(check.capacity))

    def _share(self, limit: int) -> int:
        return max(1, limit // self.sharing.processes)
