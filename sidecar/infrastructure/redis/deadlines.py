"""Ends the waiting for answers that do not come in time, by a clock that is late when we are.

Under a flood the event loop itself is late. A timer would then end waits whose answers lie unread in a
socket: the store would look dead because we are busy, and every request would pass uncounted. So time is
counted in ticks, and a tick that comes late is still one tick.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from sidecar.infrastructure.redis.pending import Pending

TICKS = 20


class Deadlines:
    """Gives each who waits `seconds`; then it is told what `error` makes, and `on_late` is called."""

    def __init__(
        self, seconds: float, error: Callable[[], Exception], on_late: Callable[[], None] = lambda: None
    ) -> None:
        self._error = error
        self._on_late = on_late
        self._tick_seconds = seconds / TICKS
        self._ticks = 0
        self._ticking = False
        self._watched: deque[Pending] = deque()

    def watch(self, answer: Pending) -> None:
        if not self._ticking:
            self._wait()
        # The tick under way is shorter than a whole one, so this is never later than `seconds`.
        answer.due = self._ticks + TICKS
        self._watched.append(answer)

    def _wait(self) -> None:
        self._ticking = True
        asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        watched = self._watched
        while watched and (watched[0].done or watched[0].due <= self._ticks):
            answer = watched.popleft()
            if not answer.done:
                answer.tell(self._error())
                self._on_late()
        self._ticking = False  # not before: who is told may ask again at once
        if watched:
            self._wait()
