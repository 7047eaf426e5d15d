"""The directory and its store: the switch, resets, who did what, what is said before the store was read."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import pytest

from sidecar.application.clients import ClientDirectory
from sidecar.application.known_clients import FileClient, NotFound
from sidecar.application.ports import AuditEntry, ControlState, StoredClient, StoreUnavailable
from sidecar.domain.rule import Client, Enforcement
from sidecar.domain.ruleset import Policy, RuleSet
from tests.control import MemoryControl
from tests.decisions import rule

NOW = datetime(2024, 1, 15, 10, tzinfo=UTC)
OF_FILE = Client(id="f", rules=(rule("r"), rule("s")))
MADE = StoredClient(Client(id="made"), NOW, "v")
OFF, ON, SHADOW = Enforcement.OFF, Enforcement.ON, Enforcement.SHADOW


class Published:
    """A directory with one client in a file, and the rule sets that it has published."""

    def __init__(self, store: MemoryControl) -> None:
        self.rule_sets: list[RuleSet] = []
        self.directory = ClientDirectory(store, self.rule_sets.append, lambda c: f"<{c.id}>", lambda: NOW)
        self.use(Policy())

    def use(self, policy: Policy) -> None:
        self.directory.use_files({"f": FileClient(OF_FILE, "team.yaml", NOW)}, policy)

    @property
    def last(self) -> RuleSet:
        return self.rule_sets[-1]


@pytest.fixture
def store() -> MemoryControl:
    return MemoryControl(ControlState(version="0", clients={"made": MADE}))


@pytest.fixture
def published(store: MemoryControl) -> Published:
    return Published(store)


async def test_until_the_store_was_read_the_rule_set_is_not_complete(published: Published) -> None:
    """The files' clients are in force; whether there are others, nobody knows."""
    assert not published.last.complete
    assert published.last.client("f") == OF_FILE
    assert published.directory.get("f").client == OF_FILE
    with pytest.raises(StoreUnavailable):
        published.directory.get("made")
    with pytest.raises(StoreUnavailable):
        published.directory.get("nobody")


async def test_once_the_store_was_read_it_is_complete_and_stays_so(
    published: Published, store: MemoryControl
) -> None:
    """Also when the store goes away again, and when the files change meanwhile."""
    await published.directory.refresh()
    store.away = True
    with pytest.raises(StoreUnavailable):
        await published.directory.refresh()
    published.use(Policy(default_client="f"))
    assert published.last.complete
    assert published.last.policy.default_client == "f"
    assert published.directory.get("made").client == MADE.client
    with pytest.raises(NotFound):
        published.directory.get("nobody")


async def test_an_empty_store_that_was_read_is_complete_too(published: Published) -> None:
    """Nothing stored has no version, and is known nevertheless."""
    fresh = Published(MemoryControl(ControlState()))
    await fresh.directory.refresh()
    assert fresh.last.complete


async def test_a_failed_first_reading_leaves_it_open(published: Published, store: MemoryControl) -> None:
    """Until one succeeds."""
    store.away = True
    with pytest.raises(StoreUnavailable):
        await published.directory.refresh()
    assert not published.last.complete
    store.away = False
    await published.directory.refresh()
    assert published.last.complete


async def test_nothing_is_read_or_published_while_the_version_stays(
    published: Published, store: MemoryControl
) -> None:
    """A look costs one small question."""
    for _ in range(3):
        await published.directory.refresh()
    assert (store.loads, len(published.rule_sets)) == (1, 2)


async def test_without_the_store_nothing_is_changed(published: Published, store: MemoryControl) -> None:
    """Every change says so, and what is in force stays."""
    await published.directory.refresh()
    before, publications = store.state, len(published.rule_sets)
    store.away = True
    changes: list[Awaitable[Any]] = [
        published.directory.create(Client(id="new"), "ops"),
        published.directory.put(OF_FILE, None, "ops"),
        published.directory.delete("made", None, "ops"),
        published.directory.add_rule("f", rule("new"), None, "ops"),
        published.directory.enforce(OFF, "ops"),
        published.directory.reset("f", "*", "ops"),
        published.directory.note("ops", "counters.reset", "f/r/…"),
    ]
    for change in changes:
        with pytest.raises(StoreUnavailable):
            await change
    assert (store.state, store.entries, len(published.rule_sets)) == (before, [], publications)


async def test_the_switch_of_the_api_stands_above_the_files_until_it_is_given_back(
    published: Published,
) -> None:
    """Both are said to whoever decides."""
    published.use(Policy(enforcement=SHADOW))
    assert published.directory.enforcement is SHADOW
    assert await published.directory.enforce(OFF, "ops") is OFF
    assert published.last.policy.enforcement is OFF
    published.use(Policy(enforcement=ON))
    assert (published.directory.enforcement, published.last.policy.enforcement) == (OFF, OFF)
    assert await published.directory.enforce(None, "ops") is ON
    assert published.last.policy.enforcement is ON


async def test_of_two_who_switch_the_later_one_wins(published: Published, store: MemoryControl) -> None:
    """It says in the audit list what it really changed."""
    await Published(store).directory.enforce(SHADOW, "other")
    after, store.state = store.state, ControlState(version="0", clients={"made": MADE})
    await published.directory.refresh()

    def come_between() -> None:
        store.state = after

    store.before_change = come_between
    assert await published.directory.enforce(OFF, "ops") is OFF
    assert store.entries[-1] == AuditEntry(NOW, "ops", "enforcement", "global", "shadow", "off")


async def test_a_reset_is_in_force_at_once(published: Published) -> None:
    """For a rule or for all of a client, each once more."""
    for rule_id in ("r", "r", "*"):
        await published.directory.reset("f", rule_id, "ops")
    assert [published.last.resets("f", rule_id) for rule_id in ("r", "s")] == [3, 1]


async def test_every_change_says_who_did_what(published: Published, store: MemoryControl) -> None:
    """With what was there before and after, as it is described to people."""
    directory = published.directory
    await directory.create(Client(id="a"), "ann")
    await directory.put(Client(id="a", name="A"), None, "bob")
    await directory.add_rule("a", rule("r"), None, "ann")
    await directory.delete_rule("a", "r", None, "ann")
    await directory.delete("a", None, "bob")
    await directory.enforce(SHADOW, "ann")
    await directory.reset("f", "r", "bob")
    await directory.note("bob", "counters.reset", "f/r/…")
    assert {entry.at for entry in store.entries} == {NOW}
    told = [(e.by, e.action, e.subject, e.before, e.after) for e in store.entries]
    assert told == [
        ("ann", "client.create", "a", None, "<a>"),
        ("bob", "client.replace", "a", "<a>", "<a>"),
        ("ann", "policy.create", "a", "<a>", "<a>"),
        ("ann", "policy.delete", "a/r", "<a>", "<a>"),
        ("bob", "client.delete", "a", "<a>", None),
        ("ann", "enforcement", "global", None, "shadow"),
        ("bob", "counters.reset", "f/r", None, None),
        ("bob", "counters.reset", "f/r/…", None, None),
    ]
