"""From JSON text to domain values, or to everything that is wrong with it.

Pydantic's strict mode takes dataclasses from JSON text only, so everything is checked as text: `true`,
`"100"` and `1.5` are no integers. A field of a wrong type keeps a value from checking itself, and a wrong
rule its client; so what was refused is read again in parts, and all of its problems are told at once.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import GenericAlias
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sidecar.domain.rule import Client, Mode, Rule
from sidecar.infrastructure.explanation import Location, dotted, problems_of

T = TypeVar("T")
Located = list[tuple[Location, str]]

#: Without these, what else a rule needs cannot be told.
_DECISIVE = {"mode", "algorithm"}
#: What a field that is wrong says nothing about any more.
_DEPENDENT = {"burst": {"cost", "overrides"}}
#: From these the id of a rule that has none is derived.
_DERIVED_FROM = ("route", "method", "mode", "identifier_type", "algorithm", "window_seconds")
#: What else a client compares of its rules.
_COMPARED = (*_DERIVED_FROM, "on_missing", "max_identifiers")


class Strict(BaseModel):
    """Knows all its keys, converts nothing, never changes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


#: Said of a value from a variable whose bytes are no UTF-8.
NO_TEXT = "expected text: something from the environment is no UTF-8"


class Malformed(ValueError):
    """The text is no JSON."""


class Rejected(ValueError):
    """The text is JSON that does not fit: `problems` holds `(dotted field, message)`, `located` the same
    with each field as a tuple.
    """

    def __init__(self, located: Iterable[tuple[Location, str]]) -> None:
        self.located = list(located)
        self.problems = [(dotted(location), message) for location, message in self.located]
        super().__init__("; ".join(f"{field}: {message}" for field, message in self.problems))


def reader(kind: type[T]) -> Callable[[bytes | str], T]:
    """A function that reads JSON text as a `kind` (dataclass or model), strictly.

    It raises `Malformed` for what is no JSON and `Rejected` for what does not fit.
    """
    hashable: Any = kind
    read: Callable[[bytes | str], T] = _read_once(hashable)

    def read_all(text: bytes | str) -> T:
        try:
            return read(text)
        except Rejected as error:
            raise Rejected(_thorough(kind, text, error.located)) from None

    return read_all


def body_reader(kind: type[T]) -> Callable[[bytes], T]:
    """As `reader`, for the body of a request: one that is no object at all is `Malformed`."""
    read = reader(kind)

    def read_body(body: bytes) -> T:
        try:
            return read(body)
        except Rejected as error:
            whole = [message for location, message in error.located if location == ()]
            if whole:
                raise Malformed(whole[0]) from None
            raise

    return read_body


def dump(value: Any) -> dict[str, Any]:
    """A dataclass or model as JSON has it: enums as text, tuples as lists."""
    kind: Any = type(value)
    dumped: dict[str, Any] = _adapter(kind).dump_python(value, mode="json")
    return dumped


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@lru_cache(maxsize=64)
def _read_once(kind: Any) -> Callable[[bytes | str], Any]:
    # Pydantic takes no config for a dataclass alone; within a tuple it does, and hands it down.
    wrapper: Any = GenericAlias(tuple, (kind,))
    adapter: TypeAdapter[tuple[Any]] = TypeAdapter(wrapper, config=ConfigDict(extra="forbid", strict=True))

    def read(text: bytes | str) -> Any:
        wrapped = b"[%b]" % text if isinstance(text, bytes) else f"[{text}]"
        try:
            return adapter.validate_json(wrapped)[0]
        except ValidationError as error:
            raise _refusal(error, kind) from None

    return read


def _refusal(error: ValidationError, kind: type[Any]) -> Malformed | Rejected:
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        # The position would count the bracket before the text.
        return Malformed("expected JSON: " + first["ctx"]["error"].partition(" at line ")[0])
    if first["type"] == "missing" and first["loc"] == (0,):
        return Malformed("expected JSON, got nothing")
    if first["loc"] == ():
        return Malformed("expected one JSON value")
    problems = problems_of(error, tuple[kind])  # type: ignore[valid-type]
    return Rejected((location[1:], message) for location, message in problems)


def _thorough(kind: type[Any], text: bytes | str, found: Located) -> Located:
    """What was found, and what it hides."""
    if kind is Rule:
        return _of_rule(json.loads(text), found)
    if kind is Client:
        return _of_client(json.loads(text), found)
    return found


def _problems(kind: Any, value: Any) -> Located:
    try:
        _read_once(kind)(json.dumps(value))
    except Rejected as error:
        return error.located
    return []


def _of_client(value: Any, found: Located) -> Located:
    """A wrong rule hides neither another one nor the client's own fields."""
    if not isinstance(value, dict) or not isinstance(rules := value.get("rules"), list):
        return _without_wrong_fields(Client, value, found, {"id": "x"})
    of_rules: Located = []
    sound: list[Any] = []
    for index, rule in enumerate(rules):
        if located := _problems(Rule, rule):
            located = _of_rule(rule, located)
            of_rules += ((("rules", index, *where), message) for where, message in located)
            sound += _stand_in(rule, located)
        else:
            sound.append(rule)
    rest = value | {"rules": sound}
    return _without_wrong_fields(Client, rest, _problems(Client, rest), {"id": "x"}) + of_rules


def _of_rule(value: Any, found: Located) -> Located:
    if not isinstance(value, dict) or _wrong(found) & _DECISIVE:
        return found
    return _without_wrong_fields(Rule, value, found, {"route": _some_route(value)})


def _without_wrong_fields(kind: type[Any], value: Any, found: Located, required: dict[str, Any]) -> Located:
    """What was found, and what shows only without it; `required` stands in for fields that must be there."""
    wrong = _wrong(found)
    if not isinstance(value, dict) or not wrong:
        return found
    left = {name: part for name, part in value.items() if name not in wrong}
    untold = wrong.union(*(_DEPENDENT.get(name, ()) for name in wrong))
    more = _problems(kind, required | left)
    return found + [(where, message) for where, message in more if where and where[0] not in untold]


def _wrong(found: Located) -> set[Any]:
    return {where[0] for where, _ in found if where}


def _some_route(rule: dict[str, Any]) -> str:
    """A route with all the parameters that the rule asks for."""
    kind = rule.get("identifier_type")
    kinds = kind if isinstance(kind, list) else [kind]
    named = dict.fromkeys(one[5:] for one in kinds if isinstance(one, str) and one.startswith("path:"))
    return "/" + "/".join(f"{{{name}}}" for name in named)


def _stand_in(rule: Any, found: Located) -> Iterator[dict[str, Any]]:
    """A sound rule with the id that this wrong one has or would be given, so that a second one shows."""
    wrong = _wrong(found)
    if not isinstance(rule, dict) or "id" in wrong:
        return
    if rule.get("id"):
        yield {"id": rule["id"], "route": "/", "mode": Mode.EXEMPT}
    elif not wrong.intersection(_COMPARED):
        kept = {name: rule[name] for name in _COMPARED if name in rule}
        made = kept | ({"limit": 1} if "window_seconds" in kept else {})
        if not _problems(Rule, made):
            yield made
