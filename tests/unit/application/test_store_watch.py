"""The watch over the store: what it says, when it loads, and that it goes on."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from sidecar.application import store_watch
from sidecar.application.clients import ClientDirectory
from sidecar.application.ports import StoredClient, StoreUnavailable
from sidecar.application.readiness import Readiness
from sidecar.application.store_watch import StoreWatch
from sidecar.domain.decision import Check, Counted
from sidecar.domain.rule import Client
from tests.parts import until

STORED = StoredClient(Client(id="stored"), datetime(2024, 1, 15, 10, tzinfo=UTC))


@dataclass
class Store:
    """Counters and clients in one, either of which may be away."""

    pings: bool = True
    lists: bool = True
    loads: int = 0
    published: list[list[str]] = field(default_factory=list)
    looks: list[bool] = field(default_factory=list)

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        raise NotImplementedError

    async def ping(self) -> None:
        if not self.pings:
            raise StoreUnavailable("no answer")

    async def all(self) -> Mapping[str, StoredClient]:
        if not self.lists:
            raise StoreUnavailable("no list")
        self.loads += 1
        return {"stored": STORED}

    async def get(self, client_id: str) -> StoredClient | None:
        raise NotImplementedError

    async def replace(self, client_id: str, old: StoredClient | None, new: StoredClient | None) -> bool:
        raise NotImplementedError

    def publish(self, clients: Iterable[Client]) -> None:
        self.published.append([client.id for client in clients])


def watch(store: Store, readiness: Readiness) -> StoreWatch:
    return StoreWatch(store, ClientDirectory({}, store, store.publish), readiness, store.looks.append)


async def test_a_reachable_store_is_said_and_its_clients_are_loaded_once() -> None:
    """Later looks only ask whether it is there."""
    store, readiness = Store(), Readiness()
    watching = watch(store, readiness)
    for _ in range(3):
        await watching.look()
    assert readiness.store_reachable
    assert (store.loads, store.published, store.looks) == (1, [["stored"]], [True, True, True])


async def test_a_store_that_comes_late_is_loaded_then() -> None:
    """The sidecar serves without it meanwhile."""
    store, readiness = Store(pings=False), Readiness()
    watching = watch(store, readiness)
    await watching.look()
    assert (readiness.store_reachable, store.published) == (False, [])
    store.pings = True
    await watching.look()
    assert (readiness.store_reachable, store.published) == (True, [["stored"]])
    assert store.looks == [False, True]


async def test_a_store_that_answers_but_gives_no_clients_counts_as_away() -> None:
    """Being ready without the rules that the API made would be a lie."""
    store, readiness = Store(lists=False), Readiness()
    watching = watch(store, readiness)
    await watching.look()
    assert not readiness.store_reachable
    store.lists = True
    await watching.look()
    assert readiness.store_reachable


async def test_coming_and_going_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is away for an hour is one line, with the reason."""
    caplog.set_level(logging.INFO, "sidecar.store")
    store = Store()
    watching = watch(store, Readiness())
    for there in (True, True, False, False, False, True):
        store.pings = there
        await watching.look()
    lines = [(record.levelname, record.message) for record in caplog.records]
    came, went = ("INFO", "the store is reachable"), ("WARNING", "the store is away")
    assert lines == [came, went, came]
    assert caplog.records[1].__dict__["error"] == "no answer"


async def test_it_looks_again_and_again_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent store ends nothing."""
    monkeypatch.setattr(store_watch, "INTERVAL_SECONDS", 0)
    store = Store(pings=False)
    task = asyncio.create_task(watch(store, Readiness()).run())
    await until(lambda: len(store.looks) >= 5, "five looks")
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
