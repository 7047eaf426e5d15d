"""A configuration file as it was read: values, and for each place its line and what came from outside."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.config.substitution import Origin
from sidecar.infrastructure.explanation import Location, dotted, is_secret

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`value` is `None` where the file could not be read at all; `problems` says why."""

    path: Path
    value: Any = None
    lines: Mapping[Location, int | None] = field(default_factory=dict)
    origins: Mapping[Location, Origin] = field(default_factory=dict)
    #: Places whose problem has been told, so that nothing that follows from it is told as well.
    broken: frozenset[Location] = frozenset()
    problems: tuple[Problem, ...] = ()
    #: Every file whose content was taken over, its own first → digest of what was in it.
    read: Mapping[Path, bytes] = field(default_factory=dict)

    def line(self, location: Location) -> int | None:
        """The line of a place, or of the nearest that is around it."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return None

    def problem(self, location: Location, message: str) -> Problem:
        return Problem(self.path, self.line(location), dotted(location), self._redacted(location, message))

    def found(self, located: Iterable[tuple[Location, str]]) -> list[Problem]:
        """Problems of a validation, without those that follow from one already told."""
        return [
            self.problem(location, message)
            for location, message in located
            if not any(location[:length] in self.broken for length in range(len(location) + 1))
        ]

    def _redacted(self, location: Location, message: str) -> str:
        """The message without anything that came from a variable or a file."""
        if origin := self.origins.get(location):
            if is_secret(location):  # then the message repeats nothing of the value
                return f"{message} (in {origin.reference})"
            message = _without_value(message, origin)
        for other in self.origins.values():
            for text, reference in other.pieces:
                # Shorter ones are no secrets, and might be any word or number of the message.
                if len(text) >= 4 and text in message:
                    parts = re.split(rf"(?<!\w){re.escape(text)}(?!\w)", message)
                    message = reference.join(parts)
        return message


def _without_value(message: str, origin: Origin) -> str:
    if ", got " in message:
        return f"{message.partition(', got ')[0]}, got the value of {origin.reference}"
    message = message.replace(repr(origin.text), origin.reference)
    told = message.replace(origin.reference, "")
    # Values are brought to canonical forms (lower case, merged slashes): no word of them may stay.
    return f"the value of {origin.reference} does not fit" if _words(told) & _words(origin.text) else message


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
