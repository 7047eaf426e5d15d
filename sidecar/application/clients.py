"""Managing clients and rules: those of the files, and what the API changed and the store keeps.

Both are merged here into the one rule set in force, which is published whole.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sidecar.application.ports import AuditEntry, ControlState, ControlStore, StoredClient, StoreUnavailable
from sidecar.domain.crowding import too_crowded
from sidecar.domain.errors import InvalidValue
from sidecar.domain.rule import Client, Enforcement, Rule
from sidecar.domain.ruleset import Policy, RuleSet


class NotFound(Exception):
    """There is no client or rule of that id."""


class Conflict(Exception):
    """The change contradicts what is there; the message says how."""


class ChangedMeanwhile(Exception):
    """What was to be changed is no longer what the caller has seen."""


class Source(StrEnum):
    """Where a client comes from: a file, the API, or a file with the API's version above it."""

    FILE = "file"
    API = "api"
    OVERRIDE = "override"


@dataclass(frozen=True, slots=True)
class FileClient:
    """A client that a configuration file defines; `loaded_at` is when the file was last changed (UTC)."""

    client: Client
    file: str
    loaded_at: datetime


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client as it is in force, where it comes from and since when (UTC)."""

    client: Client
    created_at: datetime
    source: Source

    @property
    def etag(self) -> str:
        """Names this state of the client; the same on every replica."""
        return hashlib.sha256(repr(self.client).encode()).hexdigest()[:32]


Edit = Callable[[KnownClient | None], Client | None]


class ClientDirectory:
    """All clients in force. What the API made stands above a file's client of the same id.

    Methods that change take who does it (`by`), and an `etag` of the state that the caller has seen, `None`
    for any. They raise `StoreUnavailable` when the store cannot be asked, `ChangedMeanwhile` when the etag
    is no longer right; nothing has changed then.
    """

    def __init__(
        self,
        store: ControlStore,
        publish: Callable[[RuleSet], None],
        describe: Callable[[Client], Any],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._publish = publish
        self._describe = describe
        self._now = now
        self._files: Mapping[str, FileClient] = {}
        self._policy = Policy()
        self._state = ControlState()
        self._read = False
        self._reading = asyncio.Lock()

    def use_files(self, files: Mapping[str, FileClient], policy: Policy) -> None:
        """Take over what the configuration says now."""
        self._files, self._policy = files, policy
        self._publish_all()

    async def refresh(self) -> None:
        """Take over what the store holds, if it is not what is known."""
        # One after the other: an older answer must not come in the place of a newer one.
        async with self._reading:
            if self._read and await self._store.version() == self._state.version:
                return
            self._state = await self._store.load()
            self._read = True
            self._publish_all()

    # What is there.

    @property
    def enforcement(self) -> Enforcement:
        """The global one: the API's, else the file's."""
        return self._state.enforcement or self._policy.enforcement

    @property
    def enforcement_is_set(self) -> bool:
        """By the API, above the file."""
        return self._state.enforcement is not None

    async def audit(self, skip: int, limit: int) -> Sequence[AuditEntry]:
        """Who changed what, the newest first."""
        return await self._store.audit(skip, limit)

    def all(self) -> list[KnownClient]:
        """In the order of their ids."""
        return [self.get(client_id) for client_id in sorted(self._files.keys() | self._state.clients.keys())]

    def get(self, client_id: str) -> KnownClient:
        found = self._find(client_id)
        if found is None and not self._read:
            raise StoreUnavailable("the store has not been read yet")
        return _present(found, client_id)

    # What changes it.

    async def create(self, client: Client, by: str) -> KnownClient:
        def edit(known: KnownClient | None) -> Client:
            if known:
                raise Conflict(f"the client {client.id!r} exists already")
            return client

        return await self._keep(client.id, edit, None, by, "client.create")

    async def put(self, client: Client, etag: str | None, by: str) -> KnownClient:
        """Replace a client, or make it; above a file's it is an override."""
        return await self._keep(client.id, lambda known: client, etag, by, "client.replace")

    async def change(
        self, client_id: str, change: Callable[[Client], Client], etag: str | None, by: str
    ) -> KnownClient:
        def edit(known: KnownClient | None) -> Client:
            return change(_present(known, client_id).client)

        return await self._keep(client_id, edit, etag, by, "client.change")

    async def delete(self, client_id: str, etag: str | None, by: str) -> None:
        """Delete what the API made; of an override, the file's version is back then."""

        def edit(known: KnownClient | None) -> None:
            if _present(known, client_id).source is Source.FILE:
                file = self._files[client_id].file
                raise Conflict(f"the client {client_id!r} is defined in {file}; delete it there")

        await self._edit(client_id, edit, etag, by, "client.delete")

    async def add_rule(self, client_id: str, rule: Rule, etag: str | None, by: str) -> Rule:
        """Returns the rule as it is now in force, its id derived if it had none."""
        added: list[Rule] = []

        def edit(known: KnownClient | None) -> Client:
            client = _present(known, client_id).client
            added[:] = Client(id=client_id, rules=(rule,)).rules
            if any(each.id == added[0].id for each in client.rules):
                raise Conflict(
                    f"the client has a rule {added[0].id!r} already; give this one an id of its own "
                    "to count it apart"
                )
            return replace(client, rules=(*client.rules, *added))

        await self._keep(client_id, edit, etag, by, "policy.create")
        return added[0]

    async def change_rule(
        self, client_id: str, rule_id: str, change: Callable[[Rule], Rule | None], etag: str | None, by: str
    ) -> Rule | None:
        """Put another rule in the place of one, or delete it (`None`). The id stays."""
        changed: list[Rule] = []

        def edit(known: KnownClient | None) -> Client:
            client = _present(known, client_id).client
            new = change(rule_of(client, rule_id))
            changed[:] = [replace(new, id=rule_id)] if new else []
            rules = [rule if rule.id != rule_id else changed[0] if changed else None for rule in client.rules]
            return replace(client, rules=tuple(rule for rule in rules if rule))

        await self._keep(client_id, edit, etag, by, "policy.change")
        return changed[0] if changed else None

    async def enforce(self, enforcement: Enforcement | None, by: str) -> Enforcement:
        """Set the global switch; `None` gives it back to the file. Returns what is in force."""
        while True:
            await self.refresh()
            seen, old = self._state.version, self._state.enforcement
            if await self._store.replace_enforcement(
                old, enforcement, self._entry(by, "enforcement", "global", old, enforcement)
            ):
                await self.refresh()
                return self.enforcement
            await self._look_again(seen, "the global switch")

    async def reset(self, client_id: str, rule_id: str, by: str) -> None:
        """Begin new counters for a rule, or for all rules of a client (`*`)."""
        await self.refresh()
        self.get(client_id)
        await self._store.reset(
            client_id, rule_id, self._entry(by, "counters.reset", f"{client_id}/{rule_id}")
        )
        await self.refresh()

    async def note(self, by: str, action: str, subject: str) -> None:
        """Say in the audit list what was done elsewhere."""
        await self._store.note(self._entry(by, action, subject))

    # How.

    async def _keep(
        self,
        client_id: str,
        edit: Callable[[KnownClient | None], Client],
        etag: str | None,
        by: str,
        action: str,
    ) -> KnownClient:
        await self._edit(client_id, edit, etag, by, action)
        return self.get(client_id)

    async def _edit(self, client_id: str, edit: Edit, etag: str | None, by: str, action: str) -> None:
        """Edit what is there now; where another change came between, look again and edit that."""
        while True:
            await self.refresh()
            seen, known, old = self._state.version, self._find(client_id), self._state.clients.get(client_id)
            if etag is not None and (known is None or known.etag != etag):
                raise ChangedMeanwhile(f"the client {client_id!r} is no longer what the request names")
            new = edit(known)
            if new:
                self._check(new)
            stored = StoredClient(new, old.created_at if old else self._now()) if new else None
            entry = self._entry(by, action, client_id, known and known.client, new)
            if await self._store.replace_client(client_id, old, stored, entry):
                await self.refresh()
                return
            await self._look_again(seen, f"the client {client_id!r}")

    async def _look_again(self, seen: str, what: str) -> None:
        """After a lost race; if the version is the one that was `seen`, there was none and never an end."""
        await self.refresh()
        if self._state.version == seen:
            raise Conflict(f"what the store holds of {what} cannot be read; it has to be deleted there")

    def _entry(self, by: str, action: str, subject: str, before: Any = None, after: Any = None) -> AuditEntry:
        described = [self._describe(it) if isinstance(it, Client) else it for it in (before, after)]
        return AuditEntry(self._now(), by, action, subject, *described)

    def _find(self, client_id: str) -> KnownClient | None:
        stored, file = self._state.clients.get(client_id), self._files.get(client_id)
        if stored:
            source = Source.OVERRIDE if file else Source.API
            return KnownClient(stored.client, stored.created_at, source)
        return KnownClient(file.client, file.loaded_at, Source.FILE) if file else None

    def _check(self, client: Client) -> None:
        if problem := too_crowded(client.rules):
            raise InvalidValue([("rules", problem)])
        for other in self._in_force().values():
            if other.id != client.id and (shared := set(other.hosts) & set(client.hosts)):
                raise Conflict(f"the host {min(shared)!r} belongs to the client {other.id!r}")

    def _in_force(self) -> dict[str, Client]:
        files = {client_id: found.client for client_id, found in self._files.items()}
        return files | {client_id: stored.client for client_id, stored in self._state.clients.items()}

    def _publish_all(self) -> None:
        policy = replace(self._policy, enforcement=self.enforcement)
        clients = self._in_force().values()
        self._publish(RuleSet(clients, policy, self._state.resets, complete=self._read))


def _present(known: KnownClient | None, client_id: str) -> KnownClient:
    if known is None:
        raise NotFound(f"there is no client {client_id!r}")
    return known


def rule_of(client: Client, rule_id: str) -> Rule:
    """Raises `NotFound`."""
    for rule in client.rules:
        if rule.id == rule_id:
            return rule
    raise NotFound(f"the client has no rule {rule_id!r}")
