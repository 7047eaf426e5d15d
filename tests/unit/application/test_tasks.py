"""Ending tasks whose waits swallow cancellations."""

import asyncio

from sidecar.application.tasks import end, was_cancelled


async def test_a_task_that_swallows_its_cancellation_is_cancelled_again() -> None:
    """As often as it takes; the others end at the first."""
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(asyncio.sleep(60))]
    await asyncio.sleep(0)
    await end(*tasks)
    assert (swallowed, [task.cancelled() for task in tasks]) == (3, [True, True])


async def test_a_loop_can_ask_whether_it_was_cancelled() -> None:
    """Though the wait in it said nothing."""
    rounds = 0

    async def loop() -> None:
        nonlocal rounds
        while not was_cancelled():
            rounds += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert rounds == 1


async def test_nothing_to_end_is_ended() -> None:
    """At once."""
    await end()
