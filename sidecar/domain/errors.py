"""The one way in which the domain refuses a value: every problem at once, each with its field."""

from collections.abc import Iterable
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
    for name, field in value.__dataclass_fields__.items():
        number = getattr(value, name)
        if number is None or not (bounds := field.metadata.keys() & {"ge", "le"}):
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            yield name, f"expected an integer, got {number!r}"
        elif "ge" in bounds and number < field.metadata["ge"]:
            yield name, f"expected at least {field.metadata['ge']}, got {number}"
        elif "le" in bounds and number > field.metadata["le"]:
            yield name, f"expected at most {field.metadata['le']}, got {number}"
