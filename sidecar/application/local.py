"""Limits without the store: each process counts for itself, by its share of the limit.

`on_unavailable: local` holds the same algorithms to `max(1, floor(limit / live processes))` in this process's
memory, so that all processes together admit no more than the limit, or one request each.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Counted

#: Counters that are kept; of more, those are forgotten that were charged longest ago.
MAX_COUNTERS = 100_000


def wall_clock() -> int:
    """Microseconds since the epoch, as the store counts them."""
    return time.time_ns() // 1000


class LocalCounters:
    """What this process admits for rules that are `local`; `processes` share each limit."""

    def __init__(self, clock: Callable[[], int] = wall_clock) -> None:
        self.processes = 1
        self._clock = clock
        self._counters = MemoryCounters(most=MAX_COUNTERS, coarse=True)

    def hit(self, checks: Sequence[Check], *, charge: bool) -> tuple[list[Check], Counted]:
        """The checks with this process's share of their limits, and what they say."""
        shared = [self._shared(check) for check in checks]
        return shared, self._counters.hit(shared, self._clock(), charge=charge)

    def _shared(self, check: Check) -> Check:
        return replace(check, limit=self._share(check.limit), capacity=self._share(check.capacity))

    def _share(self, limit: int) -> int:
        return max(1, limit // self.processes)
