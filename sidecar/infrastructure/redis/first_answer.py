"""Several servers know the same, and some of them may be away: whoever answers first is believed.

One that hangs would else take all the time there is, and those behind it would never be asked.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

#: How soon the next one is asked as well, if one does not answer.
NEXT_SECONDS = 0.1


async def first_answer(asks: Iterable[Callable[[], Coroutine[Any, Any, T | None]]]) -> T | None:
    """What the first one knows; each is asked when those before it know nothing, or are slow.

    `None` if nobody knows. They raise nothing.
    """
    waiting = list(asks)[::-1]
    asked: set[asyncio.Task[T | None]] = set()
    try:
        while waiting or asked:
            if waiting:
                asked.add(asyncio.create_task(waiting.pop()()))
            answered, asked = await asyncio.wait(
                asked, timeout=NEXT_SECONDS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            if found := next((answer for task in answered if (answer := task.result())), None):
                return found
    finally:
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)
    return None
