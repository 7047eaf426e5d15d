"""Managing clients and rules: those of the files, and those that the API made and the store keeps.

Changes take effect here by publishing a new, whole rule set.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import NoReturn

from sidecar.application.ports import ClientRepository, StoredClient
from sidecar.domain.rule import Client, Rule

Publish = Callable[[Iterable[Client]], None]


class NotFound(Exception):
    """There is no client or rule of that id."""


class Conflict(Exception):
    """The change contradicts what is there; the message says how."""


class Source(StrEnum):
    FILE = "file"
    API = "api"


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


class ClientDirectory:
    """All clients in force. What the API made stands above a file's client of the same id.

    Methods raise `StoreUnavailable` when the store cannot be asked; nothing has changed then.
    """

    def __init__(
        self,
        files: Mapping[str, FileClient],
        repository: ClientRepository,
        publish: Publish,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._files = files
        self._repository = repository
        self._publish = publish
        self._now = now
        self._stored: dict[str, StoredClient] = {}

    async def load(self) -> None:
        """Take over what the store holds."""
        self._stored = dict(await self._repository.all())
        self._publish_all()

    def get(self, client_id: str) -> KnownClient:
        if stored := self._stored.get(client_id):
            return KnownClient(stored.client, stored.created_at, Source.API)
        if found := self._files.get(client_id):
            return KnownClient(found.client, found.loaded_at, Source.FILE)
        raise NotFound(f"there is no client {client_id!r}")

    async def create(self, client: Client) -> KnownClient:
        if client.id in self._files or client.id in self._stored:
            raise Conflict(f"the client {client.id!r} exists already")
        self._check_hosts(client)
        if not await self._change(client.id, None, StoredClient(client, self._now())):
            raise Conflict(f"the client {client.id!r} exists already")
        return self.get(client.id)

    async def delete(self, client_id: str) -> None:
        self._refuse_file(client_id)
        while stored := await self._repository.get(client_id):
            if await self._change(client_id, stored, None):
                return
        self._forget(client_id)

    async def add_rule(self, client_id: str, rule: Rule) -> Rule:
        """Returns the rule as it is now in force, its id derived if it had none."""
        added = Client(id=client_id, rules=(rule,)).rules[0]
        await self._change_rules(client_id, lambda rules: _with(rules, added))
        return added

    async def delete_rule(self, client_id: str, rule_id: str) -> None:
        await self._change_rules(client_id, lambda rules: _without(rules, rule_id))

    async def _change_rules(
        self, client_id: str, change: Callable[[tuple[Rule, ...]], tuple[Rule, ...]]
    ) -> None:
        """Change what is stored now; if another change came between, look again and change that."""
        self._refuse_file(client_id)
        while stored := await self._repository.get(client_id):
            client = replace(stored.client, rules=change(stored.client.rules))
            if await self._change(client_id, stored, replace(stored, client=client)):
                return
        self._forget(client_id)

    async def _change(self, client_id: str, old: StoredClient | None, new: StoredClient | None) -> bool:
        if not await self._repository.replace(client_id, old, new):
            return False
        if new:
            self._stored[client_id] = new
        else:
            self._stored.pop(client_id, None)
        self._publish_all()
        return True

    def _forget(self, client_id: str) -> NoReturn:
        if self._stored.pop(client_id, None):
            self._publish_all()
        raise NotFound(f"there is no client {client_id!r}")

    def _refuse_file(self, client_id: str) -> None:
        if client_id in self._files and client_id not in self._stored:
            file = self._files[client_id].file
            raise Conflict(f"the client {client_id!r} is defined in {file}; change it there")

    def _check_hosts(self, client: Client) -> None:
        for other in self._in_force().values():
            if other.id != client.id and (shared := set(other.hosts) & set(client.hosts)):
                raise Conflict(f"the host {min(shared)!r} belongs to the client {other.id!r}")

    def _in_force(self) -> dict[str, Client]:
        files = {client_id: found.client for client_id, found in self._files.items()}
        return files | {client_id: stored.client for client_id, stored in self._stored.items()}

    def _publish_all(self) -> None:
        self._publish(self._in_force().values())


def _with(rules: tuple[Rule, ...], added: Rule) -> tuple[Rule, ...]:
    if any(rule.id == added.id for rule in rules):
        raise Conflict(
            f"the client has a rule {added.id!r} already; give this one an id of its own to count it apart"
        )
    return (*rules, added)


def _without(rules: tuple[Rule, ...], rule_id: str) -> tuple[Rule, ...]:
    left = tuple(rule for rule in rules if rule.id != rule_id)
    if len(left) == len(rules):
        raise NotFound(f"the client has no rule {rule_id!r}")
    return left
