"""The clients of all files together: each checked thoroughly, then against each other."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import MAX_CHECKS
from sidecar.infrastructure.config.crowding import most_crowded
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.validation import Location, Rejected, reader, shown

_READ: dict[type[Any], Any] = {Client: reader(Client), Rule: reader(Rule)}
# Without these, what a rule needs cannot be told.
_DECISIVE = {"mode", "algorithm"}


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
    for one in placed:
        if one.client and (crowd := most_crowded(one.client.rules)) and crowd.rules > MAX_CHECKS:
            message = (
                f"{crowd.rules} rules apply to {crowd.method} {crowd.path}; "
                f"expected at most {MAX_CHECKS} for one request"
            )
            yield one.problem("rules", message=message)


def _read_client(value: Any) -> tuple[Client | None, list[tuple[Location, str]]]:
    """A client, or all its problems: a wrong rule hides neither another one nor the client's own fields."""
    try:
        return _read(Client, value), []
    except Rejected as error:
        if not isinstance(value, dict) or not isinstance(rules := value.get("rules"), list):
            return None, _thorough(Client, value, error)
    found: list[tuple[Location, str]] = []
    sound = []
    for index, rule in enumerate(rules):
        try:
            _read(Rule, rule)
            sound.append(rule)
        except Rejected as error:
            found += ((("rules", index, *where), text) for where, text in _thorough(Rule, rule, error))
    try:
        _read(Client, value | {"rules": sound})
    except Rejected as error:
        found += _thorough(Client, value | {"rules": sound}, error)
    return None, found


def _thorough(kind: type[Any], value: Any, error: Rejected) -> list[tuple[Location, str]]:
    """Its problems, and those that show only without the fields that are wrong."""
    wrong = {where[0] for where, _ in error.located if where}
    if not isinstance(value, dict) or not wrong or wrong & _DECISIVE:
        return error.located
    try:
        _read(kind, {name: part for name, part in value.items() if name not in wrong})
    except Rejected as rest:
        return error.located + [
            (where, text) for where, text in rest.located if where and where[0] not in wrong
        ]
    return error.located


def _read(kind: type[Any], value: Any) -> Any:
    return _READ[kind](json.dumps(value))


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
