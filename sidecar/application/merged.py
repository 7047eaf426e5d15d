"""The clients of the files and those that the API made, as of one moment: who stands above whom.

Immutable, so that a rule set can be made of it in a thread while the next one comes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sidecar.application.known_clients import Conflict, FileClient, KnownClient, Source
from sidecar.application.ports import ControlState, StoredClient
from sidecar.domain.rule import Client, Enforcement
from sidecar.domain.ruleset import Policy, RuleSet

#: Gives the same clients, one after the other.
Pace = Callable[[Iterable[Client]], Iterable[Client]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    files: Mapping[str, FileClient] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    state: ControlState = field(default_factory=ControlState)
    #: Whether the store was read.
    complete: bool = False

    @property
    def enforcement(self) -> Enforcement:
        """The global one: the API's, else the file's."""
        return self.state.enforcement or self.policy.enforcement

    @property
    def ids(self) -> list[str]:
        """In order, which costs less where they come nearly so."""
        return sorted([*self.files, *(self.state.clients.keys() - self.files.keys())])

    def find(self, client_id: str) -> KnownClient | None:
        if stored := self.state.clients.get(client_id):
            return self.known(stored, client_id)
        file = self.files.get(client_id)
        return KnownClient(file.client, file.loaded_at, Source.FILE) if file else None

    def known(self, stored: StoredClient, client_id: str) -> KnownClient:
        source = Source.OVERRIDE if client_id in self.files else Source.API
        return KnownClient(stored.client, stored.created_at, source)

    def in_force(self) -> Iterator[Client]:
        """Of two clients with one host the later has it: the API's before a file's."""
        stored = self.state.clients
        yield from (found.client for client_id, found in self.files.items() if client_id not in stored)
        yield from (stored[client_id].client for client_id in sorted(stored))

    def check_hosts(self, client_id: str, hosts: set[str], known: KnownClient | None) -> None:
        """Hosts that an edit adds; what was shared before must not be in the way of other changes.

        Raises `Conflict`.
        """
        added = hosts - set(known.client.hosts if known else ())
        for other in self.in_force() if added else ():
            if other.id != client_id and (shared := added & set(other.hosts)):
                raise Conflict(f"the host {min(shared)!r} belongs to the client {other.id!r}")

    def rule_set(self, before: RuleSet, pace: Pace = iter) -> RuleSet:
        """What has not changed since `before` is taken from it."""
        policy = replace(self.policy, enforcement=self.enforcement)
        return RuleSet(
            pace(self.in_force()), policy, self.state.resets, complete=self.complete, before=before
        )
