"""The event loop: uvloop where it is installed, else asyncio's; the garbage collector settled."""

import asyncio
import gc
import importlib.util
from collections.abc import Iterator

import pytest

from sidecar import event_loop


async def loop_in_use() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_is_taken_where_it_is_installed() -> None:
    expected = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
    assert type(event_loop.run(loop_in_use())).__module__.partition(".")[0] == expected


def test_without_it_everything_runs_on_asyncio_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "find_spec", lambda name: None)
    assert type(event_loop.run(loop_in_use())).__module__.partition(".")[0] == "asyncio"


def test_what_fails_in_it_is_raised_and_the_loop_closed() -> None:
    loops = []

    async def fails() -> None:
        loops.append(asyncio.get_running_loop())
        raise LookupError

    with pytest.raises(LookupError):
        event_loop.run(fails())
    assert loops[0].is_closed()


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was, afterwards."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_is_there_when_serving_begins_is_not_looked_at_again(collector: None) -> None:
    """Later garbage is collected as ever."""
    event_loop.settle()
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    circle: list[object] = []
    circle.append(circle)
    del circle
    assert gc.collect() > 0
