"""Spreading the counters of one client over the servers of a cluster, by who is counted.

All checks of a request go to the store in one step, and a cluster takes a step whose keys share one hash tag.
So a client's counters share the client's, or, where all its rules count the same identifier, that of one of
`SHARDS`, which the identifier says.
"""

import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import product
from typing import Protocol

from sidecar.domain.identity import identifier_types
from sidecar.domain.route import RoutePattern


class ShardBy(StrEnum):
    """What a cluster keeps together: a client's counters, or those of one of its identifiers."""

    CLIENT = "client"
    IDENTIFIER = "identifier"


#: What stands behind the client's id in a hash tag; no id has a slash, so no two clients share a tag.
#:
#: A tag's slot is a CRC, which is linear: how far apart two endings of one length lead does not depend on
#: what stands before them. These sixteen lead each into another sixteenth of the slots, whichever the client
#: is; 00 to 15 would lead into four of them. So each of three servers has five or six, each of sixteen has
#: one. With more of them fewer requests would travel together: a call is for one slot.
SHARDS = tuple(f"/{high}{low}" for high, low in product("0246", "0123"))


def shard_of(identifier: str) -> str:
    """The same in every process and for ever: another one would begin new counters."""
    return SHARDS[zlib.crc32(identifier.encode()) % len(SHARDS)]


class CountingRule(Protocol):
    """What of a rule says whom it counts."""

    @property
    def id(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def identifier_type(self) -> str | tuple[str, ...] | None: ...
    @property
    def on_missing(self) -> str | None: ...
    @property
    def max_identifiers(self) -> int | None: ...


def unlike(rules: Iterable[CountingRule]) -> Iterator[str]:
    """Why one request could count several identifiers under these rules, or one that is everybody's."""
    first: tuple[CountingRule, str, str] | None = None
    for rule in rules:
        source, missing = _sources(rule), rule.on_missing or "left out"
        if source == "none":
            yield f"expected rules that tell callers apart, {_named(rule)} counts everyone together"
            continue
        first = first or (rule, source, missing)
        other, wanted_source, wanted_missing = first
        if source != wanted_source:
            yield _differ("identifier_type", other, wanted_source, rule, source)
        if missing != wanted_missing:
            yield _differ("on_missing", other, wanted_missing, rule, missing)
        if rule.max_identifiers is not None:
            # The address that newcomers are counted by is in another shard.
            yield f"expected rules without max_identifiers, {_named(rule)} has {rule.max_identifiers}"


def _differ(field: str, first: CountingRule, wanted: str, rule: CountingRule, found: str) -> str:
    return (
        f"expected the same {field} in all rules that count, {_named(first)} has {wanted}, "
        f"{_named(rule)} has {found}"
    )


def _named(rule: CountingRule) -> str:
    return f"{rule.id!r} ({rule.route})"


def _sources(rule: CountingRule) -> str:
    """Where the identifier is read: what is named alike may be another segment, and the other way round."""
    return ", ".join(_source(kind, rule.route) for kind in identifier_types(rule.identifier_type))


def _source(kind: str, route: str) -> str:
    prefix, _, name = kind.partition(":")
    if prefix == "path":
        index = dict(RoutePattern.parse(route).parameters)[name]
        return f"segment {index + 1} of the path"
    return kind.lower() if prefix == "header" else kind
