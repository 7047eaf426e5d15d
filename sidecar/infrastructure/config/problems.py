"""What is wrong with a configuration, said with its place."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning; `line` counts from 1, `where` is a dotted key, empty for the whole file."""

    file: Path
    line: int | None
    where: str
    message: str

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(filter(None, (place, self.where, self.message)))


def by_line(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems of one file; each once."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0))


class ConfigurationError(ValueError):
    """The configuration cannot be used; `problems` are all of its errors, over all files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
