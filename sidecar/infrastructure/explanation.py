"""Pydantic's errors in words for people: each with its place, what was expected and what was found."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sidecar.domain.errors import InvalidValue

Location = tuple[str | int, ...]

_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
_OBJECT = ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type")
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "none_required": "null",
    **dict.fromkeys(_OBJECT, "an object"),
    "enum": "{expected}",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
}
# What pydantic appends to a location for the branch of a union that it tried.
_BRANCH = re.compile(r"(?:constrained-)?(?:str|int|bool|float)|none|(?:tuple|list|dict|function-\w+)\[.*\]")
_SECRET = ("key", "secret", "password", "url")


def dotted(location: Location) -> str:
    return ".".join(map(str, location))


def problems_of(error: ValidationError, kind: Any = None) -> list[tuple[Location, str]]:
    """All problems as `(location, message)`; `kind` is what was read, for "did you mean"."""
    grouped: dict[Location, list[ErrorDetails]] = {}
    inside: set[Location] = set()
    for detail in error.errors(include_url=False):
        location = _without_branch(detail)
        if len(detail["loc"]) - len(location) == 1 and isinstance(location[-1], int):
            inside.add(location[:-1])  # the list was the branch that was meant: its entry is the problem
        grouped.setdefault(location, []).append(detail)
    return [
        (place, message.partition(", got ")[0] if is_secret(place) else message)
        for location, details in grouped.items()
        if location not in inside
        for place, message in _told(location, details, kind)
    ]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` where something known is like it, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def shown(value: Any) -> str:
    """A value as people would write it, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}…{text[0] if isinstance(value, str) else ''}"


def _without_branch(detail: ErrorDetails) -> Location:
    location = detail["loc"]
    if location and location[-1] == "[key]":  # the key of a mapping itself
        return location[:-1]
    if detail["type"] in (*_UNKNOWN_KEY, "missing") or len(location) < 2:
        return location
    *before, branch, last = location
    if isinstance(last, str) and _BRANCH.fullmatch(last):
        return location[:-1]
    if isinstance(last, int) and isinstance(branch, str) and _BRANCH.fullmatch(branch):
        return (*before, last)
    return location


def _told(location: Location, details: list[ErrorDetails], kind: Any) -> Iterator[tuple[Location, str]]:
    """What is said about one place: of several branches, those that came furthest, in one message."""
    further = [detail for detail in details if not detail["type"].endswith("_type")]
    first, *others = further or details
    if first["type"] in _UNKNOWN_KEY:
        yield _unknown(location, _fields(kind, location[:-1]))
    elif first["type"] == "missing":
        yield location, "is required"
    elif first["type"] == "value_error":
        yield from _expanded(location, first["ctx"]["error"])
    else:
        wanted = " or ".join(dict.fromkeys(_expected(detail) for detail in (first, *others)))
        yield location, f"expected {wanted}, got {shown(first['input'])}"


def _unknown(location: Location, known: list[str]) -> tuple[Location, str]:
    """An unknown key is named, but among secrets only where it is a slip: a secret may stand there."""
    meant = did_you_mean(str(location[-1]), known)
    if meant or not _of_admin(location):
        return location, "unknown key" + meant
    return location[:-1], "unknown key; expected " + ", ".join(known)


def _expected(detail: ErrorDetails) -> str:
    if template := _EXPECTED.get(detail["type"]):
        return template.format(**detail.get("ctx", {}))
    return detail["msg"].removeprefix("Input should be ")


def _expanded(location: Location, error: Exception) -> Iterator[tuple[Location, str]]:
    if not isinstance(error, InvalidValue):
        yield location, str(error)
        return
    for field, message in error.problems:
        # An identifier in `overrides` may have dots of its own, or be a number.
        name, dot, rest = field.partition(".")
        deeper: list[str | int] = [rest] if dot else []
        if name != "overrides":
            deeper = [int(part) if part.isdecimal() else part for part in rest.split(".") if part]
        yield (*location, name, *deeper), message


def is_secret(location: Location) -> bool:
    """Whether no message may repeat the value at this place."""
    names = _names(location)
    # A URL that stands in the place of `store` may have a password.
    return _of_admin(location) or names == ["store"] or any(n.lower().endswith(_SECRET) for n in names[-1:])


def _of_admin(location: Location) -> bool:
    """`admin`, or anything in it: there a secret is easily written into a wrong place."""
    return _names(location)[:1] == ["admin"]


def _names(location: Location) -> list[str]:
    return [part for part in location if isinstance(part, str)]


def _fields(kind: Any, path: Location) -> list[str]:
    """The names that are known at `path` within a `kind`, as far as its types say."""
    if get_origin(kind) is None:
        if not (isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind))):
            return []
        types = get_type_hints(kind, include_extras=True)
        if not path:
            return list(kind.model_fields if issubclass(kind, BaseModel) else types)
        return _fields(types.get(str(path[0])), path[1:])
    same_place = get_origin(kind) in (Union, UnionType, Annotated)
    if not path and not same_place:
        return []
    for argument in get_args(kind):
        if found := _fields(argument, path if same_place else path[1:]):
            return found
    return []
