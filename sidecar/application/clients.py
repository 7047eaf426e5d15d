"""Managing clients and rules: those of the files, and what the API changed and the store keeps.

Both are merged here into the one rule set in force, which is published whole.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sidecar.application.known_clients import (
    ChangedMeanwhile,
    Conflict,
    FileClient,
    KnownClient,
    Source,
    present,
    rule_of,
)
from sidecar.application.merged import Merged
from sidecar.application.pieces import in_pieces, in_thread
from sidecar.application.ports import AuditEntry, ControlState, ControlStore, StoredClient, StoreUnavailable
from sidecar.domain.crowding import too_crowded
from sidecar.domain.errors import InvalidValue
from sidecar.domain.rule import Client, Enforcement, Rule
from sidecar.domain.ruleset import Policy, RuleSet

Edit = Callable[[KnownClient | None], Client | None]
#: The etag of a client that is there, whatever it is.
ANY = "*"


class ClientDirectory:
    """All clients in force. What the API made stands above a file's client of the same id.

    Methods that change take who does it (`by`), and the etags of states that the caller would change (`ANY`
    for any that is there, `None` for whatever it is). They raise `StoreUnavailable` when the store cannot be
    asked, `ChangedMeanwhile` when no etag is right any more; nothing has changed then.
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
        self._known = Merged()
        self._rule_set = RuleSet()
        self._reading, self._building = asyncio.Lock(), asyncio.Lock()
        self._failure = (0.0, "")

    def use_files(self, files: Mapping[str, FileClient], policy: Policy) -> None:
        """Begin with what the configuration says."""
        known = replace(self._known, files=files, policy=policy)
        self._put_in_force(known, known.rule_set(self._rule_set))

    async def take_over(
        self, files: Mapping[str, FileClient], policy: Policy, also: Callable[[], None]
    ) -> list[Iterator[object]]:
        """As `use_files`, while requests are decided; `also` is called in the same step.

        What it raises is raised, and nothing has changed then. Returns what was in force, to be let go of.
        """
        async with self._building:
            known = replace(self._known, files=files, policy=policy)
            rule_set = await self._built(known)
            also()
            left = [*self._rule_set.parts(), iter(self._known.files.values())]
            self._put_in_force(known, rule_set)
            return left

    async def refresh(self) -> None:
        """Take over what the store holds, if it is not what is known.

        One after the other: an older answer must not come in the place of a newer one. Who waited for one
        that failed shares its failure, or a hanging store would make them wait one after the other, too.
        """
        since = asyncio.get_running_loop().time()
        async with self._reading:
            failed_at, failure = self._failure
            if failed_at > since:
                raise StoreUnavailable(failure)
            try:
                await self._read_store()
            except StoreUnavailable as error:
                self._failure = asyncio.get_running_loop().time(), str(error)
                raise

    async def _read_store(self) -> None:
        if self._known.complete and await self._store.version() == self._state.version:
            return
        state, known = await self._store.load(), self._state.clients
        # What cannot be read (a newer replica may have written it) is left as it was last understood.
        kept = {client_id: known[client_id] for client_id in state.unreadable.keys() & known.keys()}
        async with self._building:
            merged = replace(
                self._known, state=replace(state, clients={**state.clients, **kept}), complete=True
            )
            self._put_in_force(merged, await self._built(merged))

    @property
    def _state(self) -> ControlState:
        return self._known.state

    @property
    def enforcement(self) -> Enforcement:
        """The global one: the API's, else the file's."""
        return self._known.enforcement

    @property
    def enforcement_is_set(self) -> bool:
        """By the API, above the file."""
        return self._state.enforcement is not None

    async def audit(self, skip: int, limit: int) -> Sequence[AuditEntry]:
        """Who changed what, the newest first."""
        return await self._store.audit(skip, limit)

    @property
    def ids(self) -> list[str]:
        """Of all clients, in order."""
        return self._known.ids

    def all(self) -> list[KnownClient]:
        """In the order of their ids."""
        known = self._known  # as of one moment: this may be asked for in a thread
        return [present(known.find(client_id), client_id) for client_id in known.ids]

    def get(self, client_id: str) -> KnownClient:
        found = self._known.find(client_id)
        if found is None and not self._known.complete:
            raise StoreUnavailable("the store has not been read yet")
        return present(found, client_id)

    async def create(self, client: Client, by: str) -> KnownClient:
        """Raises `Conflict` where there is one of that id."""

        def edit(known: KnownClient | None) -> Client:
            if known:
                raise Conflict(f"the client {client.id!r} exists already")
            return client

        return await self._keep(client.id, edit, None, by, "client.create", client.id)

    async def put(self, client: Client, etag: Collection[str] | None, by: str) -> KnownClient:
        """Replace a client, or make it; above a file's it is an override."""
        return await self._keep(client.id, lambda known: client, etag, by, "client.replace", client.id)

    async def change(
        self, client_id: str, change: Callable[[Client], Client], etag: Collection[str] | None, by: str
    ) -> KnownClient:
        def edit(known: KnownClient | None) -> Client:
            return change(present(known, client_id).client)

        return await self._keep(client_id, edit, etag, by, "client.change", client_id)

    async def delete(self, client_id: str, etag: Collection[str] | None, by: str) -> None:
        """Delete what the API made; of an override, the file's version is back then."""

        def edit(known: KnownClient | None) -> None:
            if client_id in self._state.unreadable:
                return
            if present(known, client_id).source is Source.FILE:
                file = self._known.files[client_id].file
                raise Conflict(f"the client {client_id!r} is defined in {file}; delete it there")

        await self._edit(client_id, edit, etag, by, "client.delete", client_id)

    async def add_rule(self, client_id: str, rule: Rule, etag: Collection[str] | None, by: str) -> Rule:
        """Returns the rule as it is now in force, its id derived if it had none."""
        added: list[Rule] = []

        def edit(known: KnownClient | None) -> Client:
            client = present(known, client_id).client
            added[:] = Client(id=client_id, rules=(rule,)).rules
            if any(each.id == added[0].id for each in client.rules):
                raise Conflict(
                    f"the client has a rule {added[0].id!r} already; give this one an id of its own "
                    "to count it apart"
                )
            return replace(client, rules=(*client.rules, *added))

        await self._keep(client_id, edit, etag, by, "policy.create", client_id)
        return added[0]

    async def change_rule(
        self,
        client_id: str,
        rule_id: str,
        change: Callable[[Rule], Rule],
        etag: Collection[str] | None,
        by: str,
    ) -> Rule:
        """Put another rule in the place of one; its id stays. Returns it as it is now in force."""
        changed: list[Rule] = []

        def edit(known: KnownClient | None) -> Client:
            client = present(known, client_id).client
            changed[:] = [replace(change(rule_of(client, rule_id)), id=rule_id)]
            rules = (changed[0] if rule.id == rule_id else rule for rule in client.rules)
            return replace(client, rules=tuple(rules))

        await self._keep(client_id, edit, etag, by, "policy.change", f"{client_id}/{rule_id}")
        return changed[0]

    async def delete_rule(self, client_id: str, rule_id: str, etag: Collection[str] | None, by: str) -> None:
        def edit(known: KnownClient | None) -> Client:
            client = present(known, client_id).client
            gone = rule_of(client, rule_id)
            return replace(client, rules=tuple(rule for rule in client.rules if rule is not gone))

        await self._keep(client_id, edit, etag, by, "policy.delete", f"{client_id}/{rule_id}")

    async def enforce(self, enforcement: Enforcement | None, by: str) -> Enforcement:
        """Set the global switch; `None` gives it back to the file. Returns what is in force."""
        while True:
            await self.refresh()
            seen, old = self._state.version, self._state.enforcement
            entry = self._entry(by, "enforcement", "global", old, enforcement)
            if await self._store.replace_enforcement(old, enforcement, entry):
                await self.refresh()
                return self.enforcement
            await self._look_again(seen, "the global switch")

    async def reset(self, client_id: str, rule_id: str, by: str) -> None:
        """Begin new counters for a rule, or for all rules of a client (`*`)."""
        await self.refresh()
        self.get(client_id)
        entry = self._entry(by, "counters.reset", f"{client_id}/{rule_id}")
        await self._store.reset(client_id, rule_id, entry)
        await self.refresh()

    async def note(self, by: str, action: str, subject: str) -> None:
        """Say in the audit list what was done elsewhere."""
        await self._store.note(self._entry(by, action, subject))

    async def _keep(
        self, client_id: str, edit: Edit, etag: Collection[str] | None, *noted: str
    ) -> KnownClient:
        return present(await self._edit(client_id, edit, etag, *noted), client_id)

    async def _edit(
        self, client_id: str, edit: Edit, etag: Collection[str] | None, *noted: str
    ) -> KnownClient | None:
        """Edit what is there now; where another change came between, look again and edit that.

        `noted` says by whom, what and to what, for the audit list. Returns the client as it is made.
        """
        while True:
            await self.refresh()
            seen, known = self._state.version, self._known.find(client_id)
            old = self._state.unreadable.get(client_id) or self._state.clients.get(client_id)
            if etag is not None and (known is None or not (ANY in etag or known.etag in etag)):
                raise ChangedMeanwhile(f"the client {client_id!r} is no longer what the request names")
            # In a thread, since a client may have thousands of rules to be read and checked.
            new = await asyncio.to_thread(self._edited, client_id, edit, known)
            if known and new == known.client and known.source is not Source.FILE:
                return known
            stored = StoredClient(new, old.created_at if old else self._now()) if new else None
            by, action, subject = noted
            entry = self._entry(by, action, subject, known and known.client, new)
            if await self._store.replace_client(client_id, old, stored, entry):
                await self.refresh()
                return self._known.known(stored, client_id) if stored else None
            await self._look_again(seen, f"the client {client_id!r}")

    def _edited(self, client_id: str, edit: Edit, known: KnownClient | None) -> Client | None:
        new = edit(known)
        if new and (problem := too_crowded(new.rules)):
            raise InvalidValue([("rules", problem)])
        file = self._known.files.get(client_id)
        coming = new or (file.client if file else None)
        self._known.check_hosts(client_id, set(coming.hosts if coming else ()), known)
        return new

    async def _look_again(self, seen: str, what: str) -> None:
        """After a lost race; if the version is the one that was `seen`, there was none and never an end."""
        await self.refresh()
        if self._state.version == seen:
            raise Conflict(f"what the store holds of {what} cannot be read; it has to be deleted there")

    def _entry(self, by: str, action: str, subject: str, before: Any = None, after: Any = None) -> AuditEntry:
        described = [self._describe(it) if isinstance(it, Client) else it for it in (before, after)]
        return AuditEntry(self._now(), by, action, subject, *described)

    async def _built(self, known: Merged) -> RuleSet:
        # Compiling thousands of rules takes longer than a decision may.
        return await in_thread(partial(known.rule_set, self._rule_set, in_pieces))

    def _put_in_force(self, known: Merged, rule_set: RuleSet) -> None:
        self._known, self._rule_set = known, rule_set
        self._publish(rule_set)
