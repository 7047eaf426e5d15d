"""The watch over the store: what it says, when it loads, and that it goes on."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from sidecar.application import store_watch
from sidecar.application.clients import ClientDirectory
from sidecar.application.ports import AuditEntry, StoredClient, StoreUnavailable
from sidecar.application.readiness import Readiness
from sidecar.application.store_watch import StoreWatch
from sidecar.domain.rule import Client
from sidecar.domain.ruleset import RuleSet
from tests.control import MemoryControl
from tests.parts import until

NOW = datetime(2024, 1, 15, 10, tzinfo=UTC)
ENTRY = AuditEntry(NOW, "ops", "client.create", "x")


@dataclass
class Watched:
    """A store that is watched, and what came of it."""

    store: MemoryControl = field(default_factory=MemoryControl)
    readiness: Readiness = field(default_factory=Readiness)
    published: list[RuleSet] = field(default_factory=list)
    looks: list[bool] = field(default_factory=list)
    evicts: list[bool] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        directory = ClientDirectory(self.store, self.published.append, repr)
        self.watch = StoreWatch(self.store, directory, self.readiness, self)

    def store_reachable(self, reachable: bool) -> None:
        self.looks.append(reachable)

    def store_evicts(self, evicts: bool) -> None:
        self.evicts.append(evicts)

    def live_processes(self, number: int) -> None:
        self.processes.append(number)

    async def made(self, client_id: str) -> None:
        """Another replica makes a client."""
        assert await self.store.replace_client(
            client_id, None, StoredClient(Client(id=client_id), NOW), ENTRY
        )

    def knows(self, client_id: str) -> bool:
        return bool(self.published) and self.published[-1].client(client_id) is not None


@pytest.fixture
async def running() -> AsyncIterator[Watched]:
    """One whose watch runs."""
    watched = Watched()
    task = asyncio.create_task(watched.watch.run())
    yield watched
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_reachable_store_is_said_and_loaded_once() -> None:
    """Later looks only ask for the version."""
    watched = Watched()
    await watched.made("stored")
    for _ in range(3):
        await watched.watch.look()
    assert watched.readiness.store_reachable
    assert (watched.store.loads, len(watched.published), watched.looks) == (1, 1, [True, True, True])
    assert watched.knows("stored")


async def test_a_change_is_found_at_the_next_look() -> None:
    """Also if nobody has heard of it."""
    watched = Watched()
    await watched.watch.look()
    await watched.made("stored")
    await watched.watch.look()
    assert watched.knows("stored")
    assert (watched.store.loads, len(watched.published)) == (2, 2)


async def test_a_store_that_comes_late_is_loaded_then() -> None:
    """The sidecar serves without it meanwhile."""
    watched = Watched(MemoryControl(away=True))
    await watched.watch.look()
    assert (watched.readiness.store_reachable, watched.published) == (False, [])
    watched.store.away = False
    await watched.made("stored")
    await watched.watch.look()
    assert watched.readiness.store_reachable
    assert watched.knows("stored")
    assert watched.looks == [False, True]


async def test_a_store_that_goes_takes_no_rules_along() -> None:
    """What was read last stays in force."""
    watched = Watched()
    await watched.made("stored")
    await watched.watch.look()
    watched.store.away = True
    await watched.watch.look()
    assert (watched.readiness.store_reachable, len(watched.published)) == (False, 1)
    assert watched.published[-1].complete


async def test_a_store_that_answers_but_gives_no_clients_counts_as_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Being ready without the rules that the API made would be a lie."""
    watched = Watched()

    async def unreadable() -> None:
        raise StoreUnavailable("no clients")

    with monkeypatch.context() as patch:
        patch.setattr(watched.store, "load", unreadable)
        await watched.watch.look()
        assert not watched.readiness.store_reachable
    await watched.watch.look()
    assert watched.readiness.store_reachable


@pytest.mark.parametrize("first", [True, False])
async def test_the_first_look_and_each_coming_and_going_are_logged_once(
    caplog: pytest.LogCaptureFixture, first: bool
) -> None:
    """A store that is away for an hour is one line, with the reason."""
    caplog.set_level(logging.INFO, "sidecar.store")
    watched = Watched()
    for there in (first, first, not first, not first, not first, first):
        watched.store.away = not there
        await watched.watch.look()
    lines = [(record.levelname, record.message) for record in caplog.records]
    came, went = ("INFO", "the store is reachable"), ("WARNING", "the store is away")
    assert lines == ([came, went, came] if first else [went, came, went])
    reasons = [vars(record)["error"] for record in caplog.records if record.levelname == "WARNING"]
    assert set(reasons) == {"no answer"}


async def test_it_looks_again_and_again_until_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, running: Watched
) -> None:
    """An absent store ends nothing, and it is listened to again when it is back."""
    monkeypatch.setattr(store_watch, "INTERVAL_SECONDS", 0)
    running.store.away = True
    await until(lambda: len(running.looks) >= 5, "five looks")
    assert running.looks[-1] is False
    running.store.away = False
    await until(lambda: running.looks[-1] and running.store.listened > 0, "it is back")


async def test_an_announced_change_is_in_force_without_waiting(
    monkeypatch: pytest.MonkeyPatch, running: Watched
) -> None:
    """The next look by itself would be in an hour."""
    monkeypatch.setattr(store_watch, "INTERVAL_SECONDS", 3600)
    await until(lambda: running.store.listened == 1 and running.looks == [True], "it waits")
    for name in ("one", "two"):
        await running.made(name)
        await until(lambda name=name: running.knows(name), "it is in force")  # type: ignore[misc]
    assert running.published[-1].client("one") is not None


async def test_a_cancellation_that_a_look_swallows_ends_it_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits with a timeout may do so, and the sidecar would never stop."""
    monkeypatch.setattr(store_watch, "INTERVAL_SECONDS", 0)
    watched, asked = Watched(), asyncio.Event()

    async def swallowing() -> str:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return watched.store.state.version

    await watched.watch.look()
    monkeypatch.setattr(watched.store, "version", swallowing)
    task = asyncio.create_task(watched.watch.run())
    await asked.wait()
    task.cancel()
    await until(task.done, "it has ended")


async def test_the_number_of_processes_is_told_and_kept_while_the_store_is_away() -> None:
    """Nobody is told that there are none."""
    watched = Watched()
    watched.store.processes |= {"another", "a third"}
    for away in (False, True, True, False):
        watched.store.away = away
        await watched.watch.look()
    assert watched.processes == [3, 3]
    assert len(watched.store.processes) == 3


async def test_a_store_that_may_evict_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """In `/ready`, in the news and in one line, until it may no longer."""
    caplog.set_level(logging.INFO, "sidecar.store")
    watched = Watched(readiness=Readiness(serving=True))
    for policy in ("allkeys-lru", "allkeys-lru", "noeviction"):
        watched.store.policy = policy
        await looks(watched, store_watch.EVICTION_LOOKS)
        assert watched.readiness.evicts_by == ("" if policy == "noeviction" else policy)
        assert ("evict" in watched.readiness.word) is (policy != "noeviction")
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [vars(record)["maxmemory_policy"] for record in warnings] == ["allkeys-lru"]
    assert watched.evicts == [True, True, False]


async def test_a_store_that_comes_back_is_asked_at_once_whether_it_evicts() -> None:
    """It may be another one."""
    watched = Watched()
    await watched.watch.look()
    watched.store.away = True
    await watched.watch.look()
    watched.store.away, watched.store.policy = False, "volatile-ttl"
    await watched.watch.look()
    assert watched.evicts == [False, True]


async def test_a_store_that_does_not_say_its_policy_is_not_accused() -> None:
    """An ACL user may not be allowed to ask."""
    watched = Watched(MemoryControl(policy=""), Readiness(serving=True))
    await watched.watch.look()
    assert (watched.readiness.word, watched.evicts) == ("ready", [False])


async def looks(watched: Watched, times: int) -> None:
    for _ in range(times):
        await watched.watch.look()
