"""Long work in a thread, so that requests do not wait for it.

Threads share one interpreter. One that wants it back waits for a moment each time, and the event loop wants
it back several times for each request: so whoever works for long leaves it alone again and again. What cannot
be interrupted is kept short: letting go of a large collection frees all that is in it at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
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


async def in_thread(work: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, for results that are large.

    Its futures refer to each other, and would hold the result until the garbage collector comes by.
    """
    found: list[T] = []
    await asyncio.to_thread(lambda: found.append(work()))
    return found.pop()


async def let_go(left: list[Iterator[object]]) -> None:
    """Of what these iterators give, one after the other, and of what they go through."""
    await in_thread(partial(_let_go, left))


def _let_go(left: list[Iterator[object]]) -> None:
    held: list[object] = []
    while left:
        # At its end an iterator leaves its collection. Nothing in that one goes then, since it is held here.
        held.extend(in_pieces(left.pop()))
    for _ in in_pieces(range(len(held))):
        held.pop()
