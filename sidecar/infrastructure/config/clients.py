"""The clients of all files together: each checked by itself, then against each other."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.domain.crowding import too_crowded
from sidecar.domain.rule import Client
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.explanation import Location, shown
from sidecar.infrastructure.validation import NO_TEXT, Malformed, Rejected, reader

_read = reader(Client)


@dataclass(frozen=True, slots=True)
class Placed:
    """A client as it stands in a file; `client` is `None` where it has errors."""

    document: Document
    index: int
    id: str | None
    client: Client | None

    @property
    def location(self) -> Location:
        return ("clients", self.index)

    @property
    def has_foreign_id(self) -> bool:
        """From a variable or a file."""
        return (*self.location, "id") in self.document.origins

    @property
    def place(self) -> str:
        line = self.document.line(self.location)
        return f"{self.document.path}:{line}" if line else str(self.document.path)

    def problem(self, *where: str | int, message: str) -> Problem:
        return self.document.problem((*self.location, *where), message)


def read_clients(document: Document) -> tuple[list[Placed], list[Problem]]:
    """The clients of one file, and what is wrong with them."""
    raw = document.value.get("clients", ()) if isinstance(document.value, dict) else ()
    if not isinstance(raw, list | tuple):
        return [], document.found([(("clients",), f"expected a list, got {shown(raw)}")])
    placed, problems = [], []
    for index, value in enumerate(raw):
        client, found = _read_client(value)
        problems += document.found((("clients", index, *where), message) for where, message in found)
        name = value.get("id") if isinstance(value, dict) else None
        placed.append(Placed(document, index, name if isinstance(name, str) else None, client))
    return placed, problems


def conflicts(placed: Sequence[Placed]) -> Iterator[Problem]:
    """What is wrong between clients, and between the rules of one."""
    yield from _same_ids(placed)
    yield from _same_hosts(placed)
    yield from crowded(placed)


def crowded(placed: Sequence[Placed]) -> Iterator[Problem]:
    """Rules of one client that are too many for one request."""
    for one in placed:
        if one.client and (message := too_crowded(one.client.rules)):
            yield one.problem("rules", message=message)


def _read_client(value: Any) -> tuple[Client | None, list[tuple[Location, str]]]:
    try:
        return _read(json.dumps(value)), []
    except Malformed:
        return None, [((), NO_TEXT)]
    except Rejected as error:
        return None, error.located


def _same_ids(placed: Sequence[Placed]) -> Iterator[Problem]:
    first: dict[str, Placed] = {}
    for one in placed:
        if one.id is not None and (other := first.setdefault(one.id, one)) is not one:
            yield one.problem("id", message=f"the client {one.id!r} stands in {other.place} already")


def _same_hosts(placed: Sequence[Placed]) -> Iterator[Problem]:
    first: dict[str, Placed] = {}
    for one in placed:
        for index, host in enumerate(one.client.hosts if one.client else ()):
            other = first.setdefault(host, one)
            if other.id != one.id:
                message = (
                    f"the host {host!r} is claimed by the clients {other.id!r} ({other.place}) and {one.id!r}"
                )
                yield one.problem("hosts", index, message=message)
