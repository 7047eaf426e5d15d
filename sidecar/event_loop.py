"""The event loop that serving runs on: uvloop where it is installed, which costs a decision less."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")
#: How long the loop waits for a thread that works, each time it wants the interpreter back. That is several
#: times for a request, so Python's own 5 ms would be 20 ms.
SWITCH_SECONDS = 0.0002


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
    sys.setswitchinterval(SWITCH_SECONDS)


@contextmanager
def without_collections() -> Iterator[None]:
    """While a configuration is made: objects by the million, none of which only a collection could free.

    They are to stay, so later collections do not look at them either. Where they go after all, they go at
    once, since nothing in them refers back.
    """
    gc.collect(1)  # young garbage would stay, too
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra

    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made
