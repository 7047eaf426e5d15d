"""Ending tasks that ask the store: a wait with a timeout may swallow a cancellation (bpo-37658)."""

import asyncio
from typing import Any


def was_cancelled() -> bool:
    """Whether the running task was, even if nothing told it so: a loop has to ask before it goes on."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them until they have ended, however often that is swallowed."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=0.1)
