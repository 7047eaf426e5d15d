"""The clients of files and those that the API made, merged: who stands above whom, what may be changed."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sidecar.application.clients import ClientDirectory
from sidecar.application.known_clients import (
    ChangedMeanwhile,
    Conflict,
    FileClient,
    KnownClient,
    NotFound,
    Source,
    rule_of,
)
from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from tests.control import MemoryControl
from tests.decisions import rule

NOW = datetime(2024, 1, 15, 10, tzinfo=UTC)
LOADED = datetime(2024, 1, 1, tzinfo=UTC)
OF_FILE = Client(id="f", name="file's", hosts=("f.example",), rules=(rule("r", limit=5),))


class Directory(ClientDirectory):
    """On a store in memory, with one client in a file; `rule_set` is what was published last."""

    def __init__(self, store: MemoryControl, now: datetime = NOW) -> None:
        self.rule_set = RuleSet()
        super().__init__(store, self._take, lambda client: client.name, lambda: now)
        self.use_files(files(OF_FILE), Policy())

    def _take(self, rule_set: RuleSet) -> None:
        self.rule_set = rule_set

    def in_force(self, client_id: str) -> Client | None:
        return self.rule_set.client(client_id)


def files(*clients: Client) -> Mapping[str, FileClient]:
    return {client.id: FileClient(client, "team.yaml", LOADED) for client in clients}


def named(name: str) -> Callable[[Client], Client]:
    return lambda client: replace(client, name=name)


@pytest.fixture
def store() -> MemoryControl:
    return MemoryControl()


@pytest.fixture
async def directory(store: MemoryControl) -> Directory:
    directory = Directory(store)
    await directory.refresh()
    return directory


async def test_a_client_of_a_file_is_known_as_that(directory: Directory) -> None:
    """Since the file was last changed."""
    assert directory.get("f") == KnownClient(OF_FILE, LOADED, Source.FILE)
    assert directory.in_force("f") == OF_FILE


async def test_a_created_client_is_the_apis_and_in_force(directory: Directory) -> None:
    """Since now, and listed with the others in the order of ids."""
    created = await directory.create(Client(id="a"), "ops")
    assert created == KnownClient(Client(id="a"), NOW, Source.API)
    assert directory.in_force("a") == Client(id="a")
    assert [known.client.id for known in directory.all()] == ["a", "f"]


async def test_a_changed_client_of_a_file_is_an_override_until_it_is_deleted(directory: Directory) -> None:
    """Then the file's version is back, and that one cannot be deleted here."""
    changed = await directory.change("f", named("new"), None, "ops")
    assert (changed.source, changed.client.name, changed.client.rules) == (
        Source.OVERRIDE,
        "new",
        OF_FILE.rules,
    )
    assert directory.in_force("f") == changed.client
    await directory.delete("f", None, "ops")
    assert directory.get("f") == KnownClient(OF_FILE, LOADED, Source.FILE)
    assert directory.in_force("f") == OF_FILE
    with pytest.raises(Conflict, match=r"team\.yaml"):
        await directory.delete("f", None, "ops")


async def test_an_override_stands_above_a_file_that_changes(directory: Directory) -> None:
    """Deleting it brings back what the file says by then; without the file it is the API's own."""
    await directory.put(replace(OF_FILE, name="override"), None, "ops")
    directory.use_files(files(replace(OF_FILE, name="edited")), Policy())
    assert (directory.get("f").client.name, directory.get("f").source) == ("override", Source.OVERRIDE)
    directory.use_files({}, Policy())
    assert directory.get("f").source is Source.API
    directory.use_files(files(replace(OF_FILE, name="edited")), Policy())
    await directory.delete("f", None, "ops")
    assert directory.get("f").client.name == "edited"


async def test_a_change_keeps_the_moment_of_creation(directory: Directory, store: MemoryControl) -> None:
    """It is the client's, not the change's."""
    await directory.create(Client(id="a"), "ops")
    later = Directory(store, datetime(2030, 1, 1, tzinfo=UTC))
    assert (await later.change("a", named("new"), None, "ops")).created_at == NOW


async def test_what_exists_cannot_be_created_and_what_does_not_cannot_be_changed(
    directory: Directory, store: MemoryControl
) -> None:
    """Nor deleted; nothing of it is stored or told."""
    for exists in ("f", "a"):
        if exists == "a":
            await directory.create(Client(id="a"), "ops")
        with pytest.raises(Conflict, match="exists"):
            await directory.create(Client(id=exists), "ops")
    before = store.state
    missing: list[Awaitable[Any]] = [
        directory.change("x", named("new"), None, "ops"),
        directory.delete("x", None, "ops"),
        directory.add_rule("x", rule(), None, "ops"),
        directory.change_rule("f", "x", lambda old: old, None, "ops"),
        directory.delete_rule("f", "x", None, "ops"),
        directory.reset("x", "*", "ops"),
    ]
    for change in missing:
        with pytest.raises(NotFound):
            await change
    assert store.state == before


async def test_a_host_has_one_client(directory: Directory) -> None:
    """Whether the API or a file has said so; the message names both."""
    with pytest.raises(Conflict, match=r"'f\.example' belongs to the client 'f'"):
        await directory.create(Client(id="a", hosts=("F.example.",)), "ops")
    await directory.put(replace(OF_FILE, hosts=("other.example",)), None, "ops")
    await directory.create(Client(id="a", hosts=("f.example",)), "ops")
    with pytest.raises(Conflict, match="'a'"):
        await directory.put(OF_FILE, None, "ops")


async def test_rules_are_added_changed_and_deleted(directory: Directory) -> None:
    """A rule without an id gets one, changing keeps it, and the others stay where they are."""
    added = await directory.add_rule("f", Rule(**fields(rule("", route="/new"))), None, "ops")
    assert added.id
    assert directory.get("f").client.rules == (rule("r", limit=5), added)
    changed = await directory.change_rule("f", "r", lambda old: replace(old, id="x", limit=6), None, "ops")
    assert changed == rule("r", limit=6)
    assert directory.get("f").client.rules == (rule("r", limit=6), added)
    await directory.delete_rule("f", "r", None, "ops")
    assert directory.get("f").client.rules == (added,)
    with pytest.raises(Conflict, match="id of its own"):
        await directory.add_rule("f", replace(added, id="", limit=1), None, "ops")
    with pytest.raises(NotFound):
        rule_of(directory.get("f").client, "r")


def fields(of: Rule) -> dict[str, Any]:
    return {name: getattr(of, name) for name in of.__dataclass_fields__}


async def test_an_etag_names_a_state_and_another_one_is_refused(
    directory: Directory, store: MemoryControl
) -> None:
    """The same on every replica; it changes with the client and comes back with it."""
    seen = directory.get("f").etag
    other = Directory(store)
    await other.refresh()
    assert other.get("f").etag == seen
    changed = await directory.change("f", named("new"), seen, "ops")
    assert changed.etag != seen
    refused: list[Awaitable[Any]] = [
        other.change("f", named("lost"), seen, "ops"),
        other.put(OF_FILE, seen, "ops"),
        other.delete("f", seen, "ops"),
        other.add_rule("f", rule("s"), seen, "ops"),
        other.change_rule("f", "r", lambda old: replace(old, limit=6), seen, "ops"),
        other.put(Client(id="unknown"), seen, "ops"),
    ]
    for change in refused:
        with pytest.raises(ChangedMeanwhile):
            await change
    assert other.get("f") == changed
    await other.delete("f", changed.etag, "ops")
    assert other.get("f").etag == seen


async def test_a_change_that_came_between_is_not_lost(directory: Directory, store: MemoryControl) -> None:
    """It is looked at again, and the edit is made to what is there by then, or refused by its etag."""
    before = store.state
    await Directory(store).add_rule("f", rule("one"), None, "other")
    after, store.state = store.state, before

    def come_between() -> None:
        store.state = after

    store.before_change = come_between
    await directory.add_rule("f", rule("two"), None, "ops")
    assert [known.id for known in directory.get("f").client.rules] == ["r", "one", "two"]
    store.before_change = come_between
    with pytest.raises(ChangedMeanwhile):
        await directory.add_rule("f", rule("three"), directory.get("f").etag, "ops")
