"""A configuration that is taken over while the directory is in use."""

import asyncio
import gc
import threading
import weakref
from collections import UserDict
from collections.abc import ItemsView, Iterator
from datetime import UTC, datetime

import pytest

from sidecar.application.clients import ClientDirectory
from sidecar.application.known_clients import FileClient
from sidecar.application.pieces import in_pieces, in_thread, let_go
from sidecar.domain.rule import Client, Enforcement
from sidecar.domain.ruleset import Policy, RuleSet
from tests.control import MemoryControl
from tests.decisions import rule
from tests.parts import until

NOW = datetime(2024, 1, 15, 10, tzinfo=UTC)
F, G = Client(id="f", rules=(rule("r"),)), Client(id="g")


class SlowFiles(UserDict[str, FileClient]):
    """Files that are gone through, by whoever makes a rule set of them, only once they are told to `go`."""

    def __init__(self, *clients: Client) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        super().__init__({client.id: FileClient(client, "team.yaml", NOW) for client in clients})

    def items(self) -> ItemsView[str, FileClient]:
        self.begun.set()
        assert self.go.wait(30)
        return super().items()


class Published:
    def __init__(self, *clients: Client) -> None:
        self.rule_set = RuleSet()
        self.store = MemoryControl()
        self.directory = ClientDirectory(self.store, self.take, lambda client: client.id, lambda: NOW)
        self.directory.use_files({c.id: FileClient(c, "team.yaml", NOW) for c in clients}, Policy())

    def take(self, rule_set: RuleSet) -> None:
        self.rule_set = rule_set

    @property
    def compiled(self) -> list[object]:
        return list(self.rule_set.parts()[0])


@pytest.fixture
def published() -> Published:
    return Published(F)


async def test_an_edit_that_comes_while_files_are_taken_over_is_not_lost(published: Published) -> None:
    """The loop goes on meanwhile, and both are in force afterwards."""
    directory, files = published.directory, SlowFiles(F, G)
    await directory.refresh()
    taking_over = asyncio.create_task(directory.take_over(files, Policy(), lambda: None))
    assert await asyncio.to_thread(files.begun.wait, 30)
    editing = asyncio.create_task(directory.put(Client(id="made"), None, "ops"))
    await until(lambda: bool(published.store.state.clients), "the edit is in the store")
    assert published.rule_set.client("g") is None
    files.go.set()
    await asyncio.gather(taking_over, editing)
    assert [published.rule_set.client(client_id) is not None for client_id in ("f", "g", "made")] == [
        True
    ] * 3
    assert directory.ids == ["f", "g", "made"]


async def test_what_belongs_to_it_changes_in_the_same_step_or_nothing_does(published: Published) -> None:
    files = {"g": FileClient(G, "team.yaml", NOW)}

    def fails() -> None:
        assert published.rule_set.client("f")
        raise LookupError

    with pytest.raises(LookupError):
        await published.directory.take_over(files, Policy(enforcement=Enforcement.OFF), fails)
    assert (published.directory.ids, published.directory.enforcement) == (["f"], Enforcement.ON)
    assert published.rule_set.client("g") is None


async def test_clients_that_have_not_changed_are_not_compiled_again(published: Published) -> None:
    """Whether they are the same or only equal."""
    before = published.compiled
    for same in (F, Client(id="f", rules=F.rules)):
        files = {each.id: FileClient(each, "team.yaml", NOW) for each in (same, G)}
        await published.directory.take_over(files, Policy(), lambda: None)
        assert published.compiled[0] is before[0]


async def test_what_was_in_force_is_gone_once_it_is_let_go_of(published: Published) -> None:
    """Without the garbage collector, to which all of it is frozen."""
    gc.collect()
    gc.disable()
    try:
        old = weakref.ref(published.compiled[0])
        left = await published.directory.take_over({}, Policy(), lambda: None)
        await let_go(left)
        assert old() is None
    finally:
        gc.enable()


async def test_a_large_result_of_a_thread_is_held_by_nobody_else() -> None:
    class Large:
        pass

    gc.collect()
    gc.disable()
    try:
        result = await in_thread(Large)
        held = weakref.ref(result)
        del result
        assert held() is None
    finally:
        gc.enable()


async def test_what_a_thread_raises_is_raised() -> None:
    def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await in_thread(fails)


def test_pieces_are_all_there_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works on one for longer pauses before the next."""
    pauses: list[float] = []
    times: Iterator[float] = iter(range(100))
    monkeypatch.setattr("sidecar.application.pieces.sleep", pauses.append)
    monkeypatch.setattr("sidecar.application.pieces.perf_counter", lambda: next(times))
    assert list(in_pieces("abc")) == ["a", "b", "c"]
    assert len(pauses) == 3
