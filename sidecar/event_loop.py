"""The event loop that serving runs on: uvloop where it is installed, which costs a decision less."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def settle() -> None:
    """What is there once serving begins stays: collections need not look at it again.

    Requests make little that only a collection could free, so collections come seldom, and are short.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra

    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made
