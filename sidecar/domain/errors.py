"""The one way in which the domain refuses a value: every problem at once, each with its field."""

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any


class InvalidValue(ValueError):
    """A value that checked itself and found problems.

    `problems` holds `(field, message)` pairs; a field may go deeper with dots (`overrides.vip`).
    """

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field}: {message}" for field, message in self.problems))


def about(description: str, **bounds: int) -> dict[str, Any]:
    """The `metadata` of a dataclass's field: what it is for, and its `ge` and `le`."""
    return {"description": description, **bounds}


def out_of_bounds(value: Any) -> Iterable[tuple[str, str]]:
    """Problems of a dataclass instance against the `ge` and `le` in its fields' metadata.

    The bounds stand once, in the field: this check, the YAML check and the JSON Schema read them there.
    """
    kind: Any = type(value)
    for name, least, most in _bounds(kind):
        if (number := getattr(value, name)) is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            yield name, f"expected an integer, got {number!r}"
        elif least is not None and number < least:
            yield name, f"expected at least {least}, got {number}"
        elif most is not None and number > most:
            yield name, f"expected at most {most}, got {number}"


@cache
def _bounds(kind: type[Any]) -> tuple[tuple[str, int | None, int | None], ...]:
    """Of each field that has any: its name, the least and the most."""
    found = ((f.name, f.metadata.get("ge"), f.metadata.get("le")) for f in fields(kind))
    return tuple(each for each in found if each[1:] != (None, None))
