"""The clients of one file with all that later readings need of it, so that a file that is the same is not
read as YAML, checked and compared again.

What stands between files is told by the whole reading (`loading.py`); here it is only found out whether there
is anything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from sidecar.domain.rule import Client
from sidecar.infrastructure.config.advice import of_client
from sidecar.infrastructure.config.clients import Placed
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import Problem, by_line
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.config.substitution import Unreadable, digest, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file without errors. An `outline` has no clients and warnings, only who they are."""

    path: Path
    #: Every file that its text came from, itself the first → digest of what was in it.
    read: Mapping[Path, bytes]
    #: (client's id, its hosts), in the file's order.
    owners: tuple[tuple[str, tuple[str, ...]], ...]
    clients: tuple[Client, ...]
    #: Of the clients alone, by line.
    warnings: tuple[Problem, ...]
    #: Those of the clients whose ids came from outside, and are not repeated in messages.
    unwritten: frozenset[str]
    #: The place of the first client with hosts, where nobody is everybody else's client.
    hosts_alone: Problem | None

    @property
    def written_ids(self) -> Iterator[str]:
        return (owner[0] for owner in self.owners if owner[0] not in self.unwritten)

    def defines(self, client_id: str) -> bool:
        return any(owner[0] == client_id for owner in self.owners)

    def is_unchanged(self) -> bool:
        try:
            return all(digest(read_text(path)) == found for path, found in self.read.items())
        except Unreadable:
            return False

    def outline(self) -> "Part":
        return replace(self, clients=(), warnings=())

    def with_known(self, known: "Part | None") -> "Part":
        """With the very clients of a former reading where they are equal: those are compiled already."""
        if known is None or known is self:
            return self
        before = {client.id: client for client in known.clients}
        kept = ((before.get(client.id), client) for client in self.clients)
        return replace(self, clients=tuple(old if old == new else new for old, new in kept if new))


def part_of(document: Document, placed: Sequence[Placed], settings: Settings) -> Part:
    """`placed` are the clients of the document."""
    found = [(one, one.client) for one in placed if one.client]
    alone = next((one for one, client in found if client.hosts), None)
    return Part(
        path=document.path,
        read=document.read,
        owners=tuple((client.id, client.hosts) for _, client in found),
        clients=tuple(client for _, client in found),
        warnings=by_line(chain.from_iterable(of_client(one, client, settings) for one, client in found)),
        unwritten=frozenset(client.id for one, client in found if one.has_foreign_id),
        hosts_alone=hosts_alone(alone) if alone and settings.default_client is None else None,
    )


def hosts_alone(one: Placed) -> Problem:
    return one.problem("hosts", message="without a default_client, requests for other hosts are not limited")


def are_apart(parts: Iterable[Part]) -> bool:
    """Whether no two clients have the same id or the same host."""
    ids: set[str] = set()
    hosts: dict[str, str] = {}
    for client_id, named in chain.from_iterable(part.owners for part in parts):
        if client_id in ids or any(hosts.setdefault(host, client_id) != client_id for host in named):
            return False
        ids.add(client_id)
    return True
