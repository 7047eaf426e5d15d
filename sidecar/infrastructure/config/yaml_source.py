"""YAML text to plain values, with the line of every place.

Values are built here from the node graph, not by PyYAML: it reads YAML 1.1, where `enforcement: on` is true,
`12:30` is 750 and a date is an object. Here only `true` and `false` are booleans, and whatever is no number
is text, as in YAML 1.2. References are filled in before a plain scalar gets its type.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.config.substitution import Origin, Substitution, Unreadable, digest, read_text
from sidecar.infrastructure.explanation import Location, is_secret

MAX_NODES = 1_000_000
MAX_DEPTH = 100
_PLAIN = "!plain"
_YAML = "tag:yaml.org,2002:"
_SCALARS = {_PLAIN, *(_YAML + name for name in ("str", "int", "float", "bool", "null"))}
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,100}")
_BASED = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Parser):  # type: ignore[misc]
    """Marks every plain scalar without a tag, so that it can be told from quoted and tagged ones."""

    # Beginning of the scalar (None: any) → (tag, pattern).
    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012 - PyYAML's own attribute


class _Stop(Exception):
    """The file cannot be read any further."""

    def __init__(self, location: Location, line: int, message: str) -> None:
        super().__init__(message)
        self.location, self.line, self.message = location, line, message


def read_document(path: Path, environ: Mapping[str, str] | None) -> Document:
    """Read a file whose top level is a mapping; whatever is wrong stands in the document's `problems`.

    Without an `environ`, `${…}` is text like any other: the file is another program's.
    """
    text = ""
    try:
        root = _composed(text := read_text(path))
    except Unreadable as error:
        return Document(path=path, problems=(Problem(path, None, "", str(error)),))
    except yaml.YAMLError as error:
        return Document(path=path, problems=(_syntax_problem(path, text, error),))
    if not isinstance(root, yaml.MappingNode):
        line = root.start_mark.line + 1 if root else None
        message = f"expected a mapping at the top level, got {_kind(root)}"
        return Document(path=path, problems=(Problem(path, line, "", message),))
    substitution = None if environ is None else Substitution(environ, path.parent)
    return _Builder(path, substitution).document(root, {path: digest(text)})


def plain_value(text: str) -> Any:
    """What a plain scalar stands for: null, true, false, a number, else its text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except RecursionError as error:
        raise Unreadable("is nested too deeply") from error
    except yaml.YAMLError:
        # JSON is YAML but for the tabs between its parts.
        if "\t" not in text or not _is_json(text):
            raise
        return yaml.compose(text.replace("\t", " "), Loader=_Loader)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _kind(node: yaml.Node | None) -> str:
    return "nothing" if node is None else "a list" if isinstance(node, yaml.SequenceNode) else "a scalar"


def _syntax_problem(path: Path, text: str, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    told = [
        getattr(error, "context", None),
        getattr(error, "problem", None) or getattr(error, "reason", None),
    ]
    message = "cannot be read as YAML: " + (", ".join(filter(None, told)) or "syntax error")
    # What is missing at the end is found one line after it.
    line = min(mark.line + 1, max(1, len(text.splitlines()))) if mark else None
    return Problem(path, line, "", message)


def _no_tag(node: yaml.Node, location: Location) -> str:
    """A secret that begins with `!` is a tag to YAML, unless it is quoted."""
    tag = "a tag (quote a text that begins with '!')" if is_secret(location) else f"the tag {node.tag}"
    return f"{tag} has no meaning here"


class _Builder:
    """Walks the node graph once; each alias is walked again, which is why nodes are counted."""

    def __init__(self, path: Path, substitution: Substitution | None) -> None:
        self._path = path
        self._substitution = substitution
        self._nodes = 0
        self._open: set[int] = set()
        self._lines: dict[Location, int | None] = {}
        self._origins: dict[Location, Origin] = {}
        self._told: list[tuple[Location, int, str]] = []
        self._broken: set[Location] = set()

    def document(self, root: yaml.MappingNode, read: Mapping[Path, bytes]) -> Document:
        value = None
        try:
            value = self._value(root, ())
        except _Stop as stop:
            self._told.append((stop.location, stop.line, stop.message))
        document = Document(
            path=self._path,
            value=value,
            lines=self._lines,
            origins=self._origins,
            broken=frozenset(self._broken),
            read={**read, **(self._substitution.read if self._substitution else {})},
        )
        told = (replace(document.problem(place, text), line=line) for place, line, text in self._told)
        return replace(document, problems=tuple(told))

    def _value(self, node: yaml.Node, location: Location) -> Any:
        self._count(node, location)
        self._lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open:
            self._stop(node, location, "an alias refers to what it stands in")
        if len(location) > MAX_DEPTH:
            self._stop(node, location, f"is nested more than {MAX_DEPTH} deep")
        self._open.add(id(node))
        value = self._collection(node, location)
        self._open.discard(id(node))
        return value

    def _collection(self, node: yaml.Node, location: Location) -> Any:
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
            return [self._value(child, (*location, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
            return self._mapping(node, location)
        return self._tell(location, node, _no_tag(node, location))

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, child, merged in self._pairs(node, location):
            if not isinstance(key, yaml.ScalarNode) or _SURROGATE.search(key.value):
                self._tell((*location, "?"), key, "expected a key that is text")
                continue
            place = (*location, key.value)
            if key.value not in values:
                self._lines[place] = key.start_mark.line + 1
                values[key.value] = self._value(child, place)
            elif not merged:
                message = f"the key stands twice; the first is in line {self._lines[place]}"
                self._told.append((place, key.start_mark.line + 1, message))
        return values

    def _pairs(
        self, node: yaml.MappingNode, location: Location, *, merged: bool = False
    ) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """Keys and values of a mapping: its own, then those it merges, which replace none of its own."""
        merges: list[yaml.Node] = []
        for key, child in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == _PLAIN and key.value == "<<":
                merges += child.value if isinstance(child, yaml.SequenceNode) else [child]
            else:
                self._count(key, location)
                yield key, child, merged
        for source in merges:
            self._count(source, location)
            if not isinstance(source, yaml.MappingNode):
                self._tell((*location, "<<"), source, "expected a mapping, or a list of mappings, to merge")
            elif id(source) in self._open:
                self._stop(source, location, "an alias refers to what it stands in")
            else:
                self._open.add(id(source))
                yield from self._pairs(source, location, merged=True)
                self._open.discard(id(source))

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        if node.tag not in _SCALARS:
            return self._tell(location, node, _no_tag(node, location))
        text = node.value
        if self._substitution and "${" in text:
            try:
                origin = self._substitution.fill(text)
            except Unreadable as error:
                return self._tell(location, node, str(error))
            text = origin.text
            if origin.reference:
                self._origins[location] = origin
        if _SURROGATE.search(text):
            return self._tell(location, node, "has bytes in it that are no UTF-8")
        return text if node.tag == f"{_YAML}str" else plain_value(text)

    def _tell(self, location: Location, node: yaml.Node, message: str) -> None:
        self._lines.setdefault(location, node.start_mark.line + 1)
        self._told.append((location, node.start_mark.line + 1, message))
        self._broken.add(location)

    def _count(self, node: yaml.Node, location: Location) -> None:
        # A long text costs more: it is copied for every alias.
        self._nodes += 1 + (len(node.value) // 64 if isinstance(node, yaml.ScalarNode) else 0)
        if self._nodes > MAX_NODES:
            self._stop(node, location, f"has more than {MAX_NODES} values once its aliases are expanded")

    def _stop(self, node: yaml.Node, location: Location, message: str) -> NoReturn:
        raise _Stop(location, node.start_mark.line + 1, message)
