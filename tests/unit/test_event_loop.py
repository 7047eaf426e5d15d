"""The event loop: uvloop where it is installed, else asyncio's; the garbage collector settled."""

import asyncio
import gc
import importlib.util
import sys
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
    before, switching = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    yield
    sys.setswitchinterval(switching)
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


def test_the_loop_does_not_wait_long_for_threads(collector: None) -> None:
    event_loop.settle()
    assert sys.getswitchinterval() <= 0.001


def test_what_is_made_without_collections_is_not_looked_at_later(collector: None) -> None:
    """Where it failed, nothing stays that a collection could free."""
    before = gc.get_freeze_count()
    with pytest.raises(LookupError), event_loop.without_collections():
        raise LookupError
    assert gc.get_freeze_count() == before
    with event_loop.without_collections():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    assert gc.get_freeze_count() >= before + len(made)
    assert gc.isenabled()
