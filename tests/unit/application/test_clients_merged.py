"""The directory where files, API and store do not agree: hosts, unreadable clients, a store that hangs."""

import asyncio
from datetime import UTC, datetime

import pytest

from sidecar.application.clients import ANY, ClientDirectory
from sidecar.application.known_clients import ChangedMeanwhile, Conflict, FileClient
from sidecar.application.ports import ControlState, StoredClient, StoreUnavailable
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client
from sidecar.domain.ruleset import Policy, RuleSet
from tests.control import MemoryControl
from tests.decisions import rule

NOW = datetime(2024, 1, 15, 10, tzinfo=UTC)


def directory_of(store: MemoryControl, *clients: Client) -> tuple[ClientDirectory, list[RuleSet]]:
    published: list[RuleSet] = []
    directory = ClientDirectory(store, published.append, lambda client: client.id, lambda: NOW)
    directory.use_files({c.id: FileClient(c, "f.yaml", NOW) for c in clients}, Policy())
    return directory, published


def client_of(rule_set: RuleSet, host: str) -> str | None:
    steps = rule_set.explain(RequestMetadata(method="GET", target="/", host=host))
    return steps.client.id if steps.client else None


async def test_a_host_that_two_clients_share_already_is_not_in_the_way_of_other_edits() -> None:
    """A file may give a host away that the API gave to another: the switch of either still works."""
    store = MemoryControl()
    directory, published = directory_of(store, Client(id="x"), Client(id="y"))
    await directory.put(Client(id="x", hosts=("h.com",)), None, "ops")
    files = {"x": Client(id="x"), "y": Client(id="y", hosts=("h.com",))}
    directory.use_files({i: FileClient(c, "f.yaml", NOW) for i, c in files.items()}, Policy())
    assert client_of(published[-1], "h.com") == "x", "the API's stands above the file's"
    changed = await directory.put(Client(id="x", hosts=("h.com",), name="changed"), None, "ops")
    assert changed.client.name == "changed"
    with pytest.raises(Conflict, match=r"'h\.com' belongs to"):
        await directory.create(Client(id="z", hosts=("h.com",)), "ops")


async def test_an_override_is_not_deleted_where_its_file_would_take_back_a_hosts_new_owner() -> None:
    """What the override gave up belongs to another client by now."""
    directory, _ = directory_of(MemoryControl(), Client(id="x", hosts=("x.com",)))
    await directory.put(Client(id="x"), None, "ops")
    await directory.create(Client(id="taker", hosts=("x.com",)), "ops")
    with pytest.raises(Conflict, match=r"'x\.com' belongs to"):
        await directory.delete("x", None, "ops")


async def test_a_client_that_cannot_be_read_any_more_stays_as_it_was_understood() -> None:
    """A newer replica may have written it; the file's looser rules must not come back."""
    strict = Client(id="c", rules=(rule("r", limit=1),))
    store = MemoryControl(ControlState(version="1", clients={"c": StoredClient(strict, NOW, "v1")}))
    directory, published = directory_of(store, Client(id="c", rules=(rule("r", limit=100),)))
    await directory.refresh()
    stand_in = StoredClient(Client(id="c"), NOW, "not understood")
    store.state = ControlState(version="2", unreadable={"c": stand_in})
    await directory.refresh()
    assert published[-1].client("c") == strict


async def test_an_edit_that_changes_nothing_is_none() -> None:
    """No version, no audit entry, and no replica reads everything again."""
    store = MemoryControl()
    directory, _ = directory_of(store)
    made = await directory.create(Client(id="a"), "ops")
    version = store.state.version
    assert await directory.put(Client(id="a"), None, "ops") == made
    assert (store.state.version, len(store.entries)) == (version, 1)


async def test_any_etag_stands_for_a_client_that_is_there() -> None:
    """And several may be given: one that is right is enough."""
    directory, _ = directory_of(MemoryControl())
    with pytest.raises(ChangedMeanwhile):
        await directory.put(Client(id="a"), [ANY], "ops")
    made = await directory.create(Client(id="a"), "ops")
    assert (await directory.put(Client(id="a", name="1"), [ANY], "ops")).client.name == "1"
    with pytest.raises(ChangedMeanwhile):
        await directory.put(Client(id="a", name="2"), ["other", made.etag], "ops")
    now = directory.get("a").etag
    assert (await directory.put(Client(id="a", name="2"), ["other", now], "ops")).client.name == "2"


async def test_what_has_not_changed_is_not_compiled_again() -> None:
    """A change of one client costs no other one anything."""
    directory, published = directory_of(MemoryControl(), Client(id="f", rules=(rule("r"),)))
    await directory.create(Client(id="a", rules=(rule("r"),)), "ops")
    before = published[-1]
    await directory.put(Client(id="a", name="changed", rules=(rule("r"),)), None, "ops")
    assert published[-1]._clients["f"] is before._clients["f"]
    assert published[-1]._clients["a"] is not before._clients["a"]
    await directory.reset("f", "r", "ops")
    assert published[-1]._clients["f"] is not before._clients["f"]


class Hanging(MemoryControl):
    """Fails whoever asks, but only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.let = asyncio.Event()

    async def load(self) -> ControlState:
        self.asked += 1
        await self.let.wait()
        raise StoreUnavailable("no answer in time")


async def test_who_waits_for_a_store_that_hangs_shares_one_failure() -> None:
    """One after the other they would wait for seconds each, and readiness with them."""
    store = Hanging()
    directory, _ = directory_of(store)
    waiting = [asyncio.create_task(directory.refresh()) for _ in range(12)]
    await asyncio.sleep(0)
    store.let.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 12
    assert store.asked == 1
