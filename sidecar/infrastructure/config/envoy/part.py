"""A part of an Envoy configuration with its place, and what is said about it.

Envoy reads field names as its API writes them and in camelCase; both are found here by the first.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.explanation import Location

_UNDERSCORE = re.compile(r"_([a-z0-9])")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]{1,9})?)s")


class Severity(StrEnum):
    """Only errors make the check fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and what to write instead."""

    severity: Severity
    problem: Problem


@dataclass(frozen=True, slots=True)
class Part:
    """`value` is `None` where nothing is written; its place is then the nearest that is."""

    document: Document
    where: Location
    value: Any
    #: What the place is called from `named` on, instead of its whole way from the top.
    label: str = ""
    start: int = 0

    def __bool__(self) -> bool:
        return self.value is not None

    def __getitem__(self, name: str) -> "Part":
        held = self.value if isinstance(self.value, dict) else {}
        camel = _UNDERSCORE.sub(lambda match: match[1].upper(), name)
        key = camel if camel in held and name not in held else name
        return replace(self, where=(*self.where, key), value=held.get(key))

    def items(self) -> list["Part"]:
        """Those of a list, else none."""
        held = self.value if isinstance(self.value, list) else []
        return [replace(self, where=(*self.where, index), value=value) for index, value in enumerate(held)]

    def of_type(self, name: str) -> Iterator["Part"]:
        """All parts in this one whose `@type` is a message of that name, in the order of the file."""
        if isinstance(self.value, dict):
            if str(self.value.get("@type", "")).rpartition(".")[2] == name:
                yield self
            for key, value in self.value.items():
                yield from replace(self, where=(*self.where, key), value=value).of_type(name)
        for item in self.items():
            yield from item.of_type(name)

    def named(self, label: str) -> "Part":
        return replace(self, label=label, start=len(self.where))

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else ""

    @property
    def number(self) -> int | None:
        """Also written as text, as JSON has 64-bit ones."""
        if isinstance(self.value, bool):
            return None
        if isinstance(self.value, str) and self.value.isdecimal():
            return int(self.value)
        return int(self.value) if isinstance(self.value, int | float) else None

    @property
    def milliseconds(self) -> float | None:
        """Of a duration, `0.25s`."""
        match = _DURATION.fullmatch(self.text)
        return float(match[1]) * 1000 if match else None

    def error(self, message: str) -> Finding:
        return self._finding(Severity.ERROR, message)

    def warning(self, message: str) -> Finding:
        return self._finding(Severity.WARNING, message)

    def note(self, message: str) -> Finding:
        return self._finding(Severity.NOTE, message)

    def _finding(self, severity: Severity, message: str) -> Finding:
        names = [self.label, *map(str, self.where[self.start :])]
        line = self.document.line(self.where)
        return Finding(severity, Problem(self.document.path, line, ".".join(filter(None, names)), message))


def seconds(milliseconds: float) -> str:
    """As Envoy writes a duration."""
    return f"{milliseconds / 1000:g}s"
