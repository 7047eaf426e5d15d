"""Rules and the clients that own them: frozen values that check themselves when made.

They are the types of the YAML file and of the admin API: `metadata` holds each field's description and
bounds, from which the configuration's checks and its JSON Schema are made.
"""

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from sidecar.domain.address import canonical_network
from sidecar.domain.algorithms import MAX_INTEGER, SECOND_US, Algorithm, Terms, problems
from sidecar.domain.errors import InvalidValue, about, out_of_bounds
from sidecar.domain.identity import check_identifier_type, check_written, identifier_types
from sidecar.domain.refusal import Refusal
from sidecar.domain.route import RoutePattern
from sidecar.domain.sharding import ShardBy, unlike

YEAR_SECONDS = 365 * 24 * 3600
ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHOD = re.compile(r"[A-Z0-9!#$%&'+.^_`|~-]{1,64}")  # RFC 9110 token, upper case, without "*"
# RFC 1123, and the underscore that some internal names have.
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:\*\.)?(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\]")
_RULE_NAMESPACE = uuid.UUID("6f3b6a3e-2f0c-5d0e-9d1c-7d7f3f1c5a10")


class Mode(StrEnum):
    """What a matching rule does."""

    ENFORCE = "enforce"
    SHADOW = "shadow"
    EXEMPT = "exempt"
    BLOCK = "block"


class Enforcement(StrEnum):
    """Whether rules refuse (`on`), only count and report (`shadow`), or are not looked at (`off`)."""

    ON = "on"
    SHADOW = "shadow"
    OFF = "off"


class OnMissing(StrEnum):
    """Who is counted when the identifier is missing: the address, everyone together, or nobody (403)."""

    IP = "ip"
    SHARED = "shared"
    DENY = "deny"


class OnUnavailable(StrEnum):
    """The answer while the store is away: yes, no, or that of this process, by its share of the limit."""

    ALLOW = "allow"
    DENY = "deny"
    LOCAL = "local"


BLOCK, UNLIMITED = "block", "unlimited"


@lru_cache(maxsize=1024)
def _generation(*what: object) -> str:
    return hashlib.blake2s(json.dumps(what).encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A route, a method, an identifier type, an algorithm, a limit and a window; the API says *policy*.

    Raises `InvalidValue` naming every wrong field.
    """

    id: str = field(default="", metadata=about("Derived from what the rule counts where it is left out."))
    route: str = field(metadata=about("/exact, /with/{segments}, /prefix/* or /pre*."))
    method: str | tuple[str, ...] = field(default="*", metadata=about("One method, several, or * for all."))
    mode: Mode = field(default=Mode.ENFORCE, metadata=about("What the rule does when it matches."))
    identifier_type: str | tuple[str, ...] | None = field(
        default=None,
        metadata=about(
            "Who is counted: none, session_id, ip_user_agent, ip, user_id, header:NAME, cookie:NAME, "
            "path:NAME, jwt_claim:NAME, or a list of these for a combined key."
        ),
    )
    algorithm: Algorithm = field(
        default=Algorithm.SLIDING_WINDOW, metadata=about("How requests are counted.")
    )
    limit: int | None = field(
        default=None, metadata=about("Units admitted per window.", ge=1, le=MAX_INTEGER)
    )
    window_seconds: int | None = field(
        default=None, metadata=about("The window's length in seconds.", ge=1, le=YEAR_SECONDS)
    )
    burst: int | None = field(
        default=None,
        metadata=about("What a token_bucket holds; the limit if left out.", ge=1, le=MAX_INTEGER),
    )
    cost: int = field(default=1, metadata=about("Units that one request uses.", ge=1, le=MAX_INTEGER))
    final: bool = field(default=False, metadata=about("Leaves out every less specific rule."))
    on_missing: OnMissing | None = field(
        default=None, metadata=about("Who is counted when the identifier is missing.")
    )
    on_unavailable: OnUnavailable | None = field(
        default=None, metadata=about("The answer while the store is away.")
    )
    max_identifiers: int | None = field(
        default=None,
        metadata=about(
            "While about so many identifiers have counters, a new one is counted by its address instead.",
            ge=1,
            le=MAX_INTEGER,
        ),
    )
    response: Refusal | None = field(
        default=None, metadata=about("Status, body and content type of its refusals, where they differ.")
    )
    overrides: Mapping[str, int | str] = field(
        default_factory=dict,
        metadata=about("Identifier to its own limit, or to 'block', or to 'unlimited'."),
    )

    def __post_init__(self) -> None:
        if found := [*out_of_bounds(self), *self._problems()]:
            raise InvalidValue(found)

    @property
    def counts(self) -> bool:
        return self.mode in (Mode.ENFORCE, Mode.SHADOW)

    @property
    def methods(self) -> frozenset[str] | None:
        """The methods that match, `None` for all."""
        named = (self.method,) if isinstance(self.method, str) else self.method
        return None if "*" in named else frozenset(named)

    @property
    def generation(self) -> str:
        """Names the counters: others are begun when algorithm, window or identifier type change."""
        return _generation(self.algorithm, self.window_seconds, identifier_types(self.identifier_type))

    def terms(self, limit: int | None = None) -> Terms:
        """What a counter of this rule is held to, with an override's `limit` if given."""
        own = self.limit or 0
        limit = own if limit is None else limit
        return Terms(limit, self.burst or limit, (self.window_seconds or 0) * SECOND_US)

    def _problems(self) -> Iterator[tuple[str, str]]:
        if self.id and not ID_PATTERN.fullmatch(self.id):
            yield "id", f"expected 1 to 64 characters of A-Z a-z 0-9 . _ -, got {self.id!r}"
        yield from self._route_problems()
        if self.counts:
            yield from self._counting_problems()
        for name in ("limit", "window_seconds", "identifier_type", "burst", "overrides", "max_identifiers"):
            if not self.counts and getattr(self, name):
                yield name, f"has no meaning in a rule of mode {self.mode}, which counts nothing"
        if self.response and self.mode is Mode.EXEMPT:
            yield "response", "has no meaning in a rule of mode exempt, which refuses nothing"

    def _route_problems(self) -> Iterator[tuple[str, str]]:
        parameters: dict[str, int] = {}
        try:
            parameters = dict(RoutePattern.parse(self.route).parameters)
        except ValueError as error:
            yield "route", str(error)
        for method in (self.method,) if isinstance(self.method, str) else self.method:
            if method != "*" and not _METHOD.fullmatch(method):
                yield "method", f"expected an upper-case HTTP method or '*', got {method!r}"
        if not self.method:
            yield "method", "expected at least one method"
        yield from (("identifier_type", problem) for problem in self._identifier_problems(parameters))

    def _identifier_problems(self, parameters: Mapping[str, int]) -> Iterator[str]:
        kinds = identifier_types(self.identifier_type)
        for kind in kinds:
            if problem := check_identifier_type(kind, parameters):
                yield problem
        if len(kinds) > 1 and "none" in kinds:
            yield "none counts everyone together, so it cannot be part of a combined key"
        # The names of headers compare without case.
        same = Counter(kind.lower() if kind.startswith("header:") else kind for kind in kinds)
        yield from (f"{kind!r} stands {times} times" for kind, times in same.items() if times > 1)

    def _counting_problems(self) -> Iterator[tuple[str, str]]:
        missing: list[str] = [
            n for n in ("identifier_type", "limit", "window_seconds") if not getattr(self, n)
        ]
        for name in missing:
            if getattr(self, name) in (None, ()):
                yield name, "is required in a rule that counts"
        if self.max_identifiers and set(identifier_types(self.identifier_type)) <= {"ip", "none"}:
            yield "max_identifiers", "belongs to identifiers that callers can make up, not to addresses"
        if self.burst is not None and self.algorithm is not Algorithm.TOKEN_BUCKET:
            yield "burst", f"belongs to token_bucket; {self.algorithm} has none"
        countable = not missing and not any(True for _ in out_of_bounds(self))
        for name, limit in self.overrides.items():
            yield from self._override_problems(name, limit, countable=countable)
        if not countable:
            return
        for problem in problems(self.algorithm, self.terms()):
            yield "burst" if problem.startswith("a burst") else "limit", problem
        if self.cost > self.terms().capacity:
            yield "cost", f"is more than the {self.terms().capacity} that fit at once: nothing could pass"

    def _override_problems(
        self, name: str, limit: int | str, *, countable: bool
    ) -> Iterator[tuple[str, str]]:
        where = f"overrides.{name}"
        if self.identifier_type and (problem := check_written(self.identifier_type, name)):
            yield where, problem
        if isinstance(limit, bool) or not isinstance(limit, int):
            if limit not in (BLOCK, UNLIMITED):
                yield where, f"expected a limit, {BLOCK!r} or {UNLIMITED!r}, got {limit!r}"
        elif not 1 <= limit <= MAX_INTEGER:
            yield where, f"expected a limit of at least 1 and at most 2^53, got {limit}"
        elif countable:
            yield from ((where, problem) for problem in problems(self.algorithm, self.terms(limit)))
            if self.burst is None and limit < self.cost:
                yield where, f"is less than the rule's cost of {self.cost}: nothing could pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A tenant or service that owns rules. Raises `InvalidValue` naming every wrong field."""

    id: str = field(metadata=about("1 to 64 characters of A-Z a-z 0-9 . _ -"))
    name: str = field(default="", metadata=about("For people."))
    hosts: tuple[str, ...] = field(
        default=(), metadata=about("Hosts whose requests are this client's: exact, or *.example.com.")
    )
    exempt_ips: tuple[str, ...] = field(
        default=(), metadata=about("Addresses or CIDR networks that are never limited.")
    )
    enforcement: Enforcement = field(
        default=Enforcement.ON,
        metadata=about("on, shadow or off; the global setting can only weaken it."),
    )
    shard_by: ShardBy = field(
        default=ShardBy.CLIENT, metadata=about("What a cluster keeps on one server: client or identifier.")
    )
    rules: tuple[Rule, ...] = field(default=(), metadata=about("All matching rules apply."))

    def __post_init__(self) -> None:
        rules = tuple(rule if rule.id else self._with_derived_id(rule) for rule in self.rules)
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "hosts", tuple(host.lower().removesuffix(".") for host in self.hosts))
        if found := list(self._problems()):
            raise InvalidValue(found)

    def _with_derived_id(self, rule: Rule) -> Rule:
        """The same id on every replica and after every restart, as long as the same is counted."""
        what = [
            self.id,
            rule.route,
            sorted(rule.methods or ["*"]),
            identifier_types(rule.identifier_type),
            rule.algorithm if rule.counts else rule.mode,
            rule.window_seconds,
        ]
        return replace(rule, id=str(uuid.uuid5(_RULE_NAMESPACE, json.dumps(what))))

    def _problems(self) -> Iterator[tuple[str, str]]:
        if not ID_PATTERN.fullmatch(self.id):
            yield "id", f"expected 1 to 64 characters of A-Z a-z 0-9 . _ -, got {self.id!r}"
        for index, host in enumerate(self.hosts):
            if not _HOST.fullmatch(host):
                yield f"hosts.{index}", f"expected a host name or *.name, without port, got {host!r}"
        for index, network in enumerate(self.exempt_ips):
            try:
                canonical_network(network)
            except ValueError as error:
                yield f"exempt_ips.{index}", f"expected an address or a CIDR network: {error}"
        if self.shard_by is ShardBy.IDENTIFIER:
            yield from (("shard_by", each) for each in unlike(rule for rule in self.rules if rule.counts))
        for rule_id, times in Counter(rule.id for rule in self.rules).items():
            if times > 1:
                yield "rules", self._twice([rule for rule in self.rules if rule.id == rule_id])

    def _twice(self, rules: list[Rule]) -> str:
        if all(self._with_derived_id(rule).id == rule.id for rule in rules):
            return (
                f"{len(rules)} rules for {rules[0].route} count the same in the same way; "
                "give each an id, so that their counters can be told apart"
            )
        return f"the rule id {rules[0].id!r} stands {len(rules)} times"
