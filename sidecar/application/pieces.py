"""Long work in a thread, so that requests do not wait for it.

Threads share one interpreter. One that wants it back waits for a moment each time, and the event loop wants
it back several times for each request: so whoever works for long leaves it alone again and again.
"""

from collections.abc import Iterable, Iterator
from time import perf_counter, sleep
from typing import TypeVar

T = TypeVar("T")
#: Work at a time, and the pause after it.
WORK_SECONDS, PAUSE_SECONDS = 0.0005, 0.0005


def in_pieces(items: Iterable[T]) -> Iterator[T]:
    """The items, with pauses between them. Not for the loop's own thread, which would be kept waiting."""
    begun = perf_counter()
    for item in items:
        yield item
        if perf_counter() - begun > WORK_SECONDS:
            sleep(PAUSE_SECONDS)
            begun = perf_counter()
