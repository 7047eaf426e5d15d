"""All clients and their rules, indexed: from a request to the checks that it has to pass.

A `RuleSet` is immutable and swapped whole. Finding the rules of a request costs the same with 10 rules and
with 10,000: exact routes are looked up, the others stand in a tree of path segments that is walked once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.identity import (
    FALLBACK_SHARED,
    IdentifierReader,
    IdentityOptions,
    canonical_network,
    fallback_to_address,
)
from sidecar.domain.request import Address, Network, RequestMetadata
from sidecar.domain.route import RouteKind, RoutePattern, canonical_path
from sidecar.domain.rule import BLOCK, UNLIMITED, Client, Enforcement, Mode, OnMissing, Rule

#: What one call to the store may carry. Of more matching rules the most specific are counted, enforcing
#: ones first; `sidecar check` refuses configurations in which a request could meet more.
MAX_CHECKS = 64
MAX_HOST = 255  # "*." and a name of 253 characters
#: Stands for all rules of a client where counters are reset.
ALL_RULES = "*"
_STRENGTH = [Enforcement.OFF, Enforcement.SHADOW, Enforcement.ON]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What holds for all clients."""

    default_client: str | None = None
    enforcement: Enforcement = Enforcement.ON
    on_missing: OnMissing = OnMissing.IP
    decode_slashes: bool = False
    identity: IdentityOptions = field(default_factory=IdentityOptions)


class RuleSet:
    """Finds the client and the rules of a request. Later clients of the same id replace earlier ones."""

    def __init__(
        self,
        clients: Iterable[Client] = (),
        policy: Policy | None = None,
        resets: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self._resets = resets or {}
        self._clients = {client.id: _ClientRules(client, self.policy, self._resets) for client in clients}
        self._hosts = {host: rules for rules in self._clients.values() for host in rules.client.hosts}

    def client(self, client_id: str) -> Client | None:
        found = self._clients.get(client_id)
        return found.client if found else None

    def resets(self, client_id: str, rule_id: str) -> int:
        """How often this rule's counters were reset."""
        return _resets(self._resets, client_id, rule_id)

    def checks_for(self, request: RequestMetadata) -> "list[Check] | Decision":
        """The checks that the store has to count (at most 64), or the decision where nothing is counted."""
        rules = self._find_client(request)
        return rules.checks_for(request) if rules else Decision(True, Reason.NO_POLICY)

    def _find_client(self, request: RequestMetadata) -> "_ClientRules | None":
        """A pinned or named client that is unknown never falls through to another one."""
        if request.client_id is not None:
            return self._clients.get(request.client_id)
        by_host = self._hosts.get(request.host) or self._by_wildcard(request.host)
        return by_host or self._clients.get(self.policy.default_client or "")

    def _by_wildcard(self, host: str) -> "_ClientRules | None":
        """The client with the longest `*.suffix` of the host."""
        host = host[-MAX_HOST:]  # a suffix that a rule can name is no longer; a hostile host may be 60 kB
        while "." in host:
            host = host.partition(".")[2]
            if found := self._hosts.get(f"*.{host}"):
                return found
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _CompiledRule:
    rule: Rule
    pattern: RoutePattern
    methods: frozenset[str] | None
    shadow: bool
    on_missing: OnMissing
    reader: IdentifierReader
    overrides: Mapping[tuple[str, ...], int | str]
    specificity: tuple[tuple[int, int], bool]
    resets: int

    @classmethod
    def of(cls, rule: Rule, policy: Policy, *, shadow: bool, resets: int) -> "_CompiledRule":
        pattern = RoutePattern.parse(rule.route)
        methods = rule.methods
        reader = IdentifierReader(rule.identifier_type, dict(pattern.parameters), policy.identity)
        return cls(
            rule=rule,
            pattern=pattern,
            methods=methods,
            shadow=shadow or rule.mode is Mode.SHADOW,
            on_missing=rule.on_missing or policy.on_missing,
            reader=reader,
            overrides={reader.parse(name): limit for name, limit in rule.overrides.items()},
            specificity=(pattern.specificity, methods is not None),
            resets=resets,
        )


class _ClientRules:
    """The rules of one client, ready to be asked."""

    def __init__(self, client: Client, policy: Policy, resets: Mapping[tuple[str, str], int]) -> None:
        self.client = client
        self._policy = policy
        self._enforcement = min(client.enforcement, policy.enforcement, key=_STRENGTH.index)
        self._exempt: list[Network] = [canonical_network(text) for text in client.exempt_ips]
        shadow = self._enforcement is Enforcement.SHADOW
        self._index = _RouteIndex(
            _CompiledRule.of(rule, policy, shadow=shadow, resets=_resets(resets, client.id, rule.id))
            for rule in client.rules
        )

    def checks_for(self, request: RequestMetadata) -> list[Check] | Decision:
        if self._enforcement is Enforcement.OFF:
            return Decision(True, Reason.ENFORCEMENT_OFF, self.client.id)
        if self._exempt and self._is_exempt(request.address):
            return Decision(True, Reason.EXEMPT, self.client.id)
        path = canonical_path(request.target, decode_slashes=self._policy.decode_slashes)
        matching = self._matching(request.method, path)
        if not matching:
            return Decision(True, Reason.NO_POLICY, self.client.id)
        for compiled in matching:
            if compiled.rule.mode is Mode.EXEMPT:
                return Decision(True, Reason.EXEMPT, self.client.id, compiled.rule.id)
        for compiled in matching:
            if compiled.rule.mode is Mode.BLOCK and not compiled.shadow:
                return Decision(False, Reason.BLOCKED, self.client.id, compiled.rule.id)
        return self._checks(request, path, [c for c in matching if c.rule.counts])

    def _is_exempt(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._exempt)

    def _matching(self, method: str, path: str | None) -> list[_CompiledRule]:
        """The rules that apply, most specific first, without those that a `final` one leaves out.

        A shadow rule is there to be watched: `final` on it leaves out other shadow rules only.
        """
        found = [c for c in self._index.find(path) if c.methods is None or method in c.methods]
        if len(found) < 2:
            return found
        found.sort(key=lambda compiled: (compiled.specificity, compiled.rule.id), reverse=True)
        for final in [compiled for compiled in found if compiled.rule.final]:
            found = [c for c in found if c.specificity >= final.specificity or final.shadow > c.shadow]
        return found

    def _checks(
        self, request: RequestMetadata, path: str | None, matching: Sequence[_CompiledRule]
    ) -> list[Check] | Decision:
        checks: list[Check] = []
        for compiled in matching:
            made = self._check(compiled, request, path)
            if isinstance(made, Decision):
                return made
            if made is not None:
                checks.append(made)
        if not checks:
            left_alone = any(not compiled.shadow for compiled in matching)
            return Decision(True, Reason.EXEMPT if left_alone else Reason.ALLOWED, self.client.id)
        if len(checks) > MAX_CHECKS:
            checks = sorted(checks, key=lambda check: check.shadow)[:MAX_CHECKS]
        return checks

    def _check(
        self, compiled: _CompiledRule, request: RequestMetadata, path: str | None
    ) -> Check | Decision | None:
        """What to count for one rule; `None` where it leaves this identifier alone."""
        rule = compiled.rule
        limit: int | str = rule.limit or 0
        if (values := compiled.reader.values(request, path)) is None:
            identifier = self._missing(compiled, request)
            if identifier is None:
                return None if compiled.shadow else _refused(Reason.IDENTIFIER_MISSING, self.client, rule)
        else:
            identifier = compiled.reader.identifier(values)
            if compiled.overrides:
                limit = compiled.overrides.get(values, limit)
            if limit == UNLIMITED or (limit == BLOCK and compiled.shadow):
                return None
            if limit == BLOCK:
                return _refused(Reason.BLOCKED, self.client, rule)
        terms = rule.terms(int(limit))
        # What can never fit need not be larger than the doubles of the scripts hold.
        cost = min(rule.cost * (request.cost or 1), 2 * terms.capacity)
        return Check(
            client_id=self.client.id,
            rule=rule,
            identifier=identifier,
            limit=terms.limit,
            capacity=terms.capacity,
            cost=cost,
            shadow=compiled.shadow,
            resets=compiled.resets,
        )

    def _missing(self, compiled: _CompiledRule, request: RequestMetadata) -> str | None:
        match compiled.on_missing:
            case OnMissing.IP:
                return fallback_to_address(request.address, self._policy.identity)
            case OnMissing.SHARED:
                return FALLBACK_SHARED
            case OnMissing.DENY:
                return None


def _resets(resets: Mapping[tuple[str, str], int], client_id: str, rule_id: str) -> int:
    """Those of the rule, and those of all of the client's rules."""
    return resets.get((client_id, rule_id), 0) + resets.get((client_id, ALL_RULES), 0)


def _refused(reason: Reason, client: Client, rule: Rule) -> Decision:
    return Decision(False, reason, client.id, rule.id)


class _Node:
    """One segment of the tree: what ends here, and what goes on."""

    __slots__ = ("children", "ending", "partial", "prefixes", "wildcard")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.wildcard: _Node | None = None
        self.ending: list[_CompiledRule] = []
        self.prefixes: list[_CompiledRule] = []
        #: length → beginning of the next segment → rules (`/a/v*`)
        self.partial: dict[int, dict[str, list[_CompiledRule]]] = {}

    def child(self, segment: str | None) -> "_Node":
        if segment is not None:
            return self.children.setdefault(segment, _Node())
        self.wildcard = self.wildcard or _Node()
        return self.wildcard

    def next(self, segment: str) -> "Iterator[_Node]":
        if literal := self.children.get(segment):
            yield literal
        if self.wildcard:
            yield self.wildcard

    def begun(self, segment: str) -> Iterator[_CompiledRule]:
        for length, rules in self.partial.items():
            yield from rules.get(segment[:length], ())


class _RouteIndex:
    def __init__(self, rules: Iterable[_CompiledRule]) -> None:
        self._exact: dict[str, list[_CompiledRule]] = {}
        self._root = _Node()
        self._depth = 0
        self._catch_all: list[_CompiledRule] = []
        for compiled in rules:
            self._add(compiled)

    def _add(self, compiled: _CompiledRule) -> None:
        pattern = compiled.pattern
        if pattern.kind is RouteKind.EXACT:
            self._exact.setdefault(pattern.text, []).append(compiled)
            return
        if pattern.catches_all:
            self._catch_all.append(compiled)
            return
        node = self._root
        for segment in pattern.segments:
            node = node.child(segment)
        if pattern.partial is not None:
            partial = node.partial.setdefault(len(pattern.partial), {})
            partial.setdefault(pattern.partial, []).append(compiled)
        elif pattern.kind is RouteKind.PREFIX:
            node.prefixes.append(compiled)
        else:
            node.ending.append(compiled)
        self._depth = max(self._depth, len(pattern.segments) + (pattern.partial is not None))

    def find(self, path: str | None) -> list[_CompiledRule]:
        """All rules whose route matches, in no order. What is not a path matches the catch-all alone."""
        found = list(self._catch_all)
        if path is None:
            return found
        found += self._exact.get(path, ())
        if self._depth:
            found += self._walk(path)
        return found

    def _walk(self, path: str) -> Iterator[_CompiledRule]:
        # Split no further than the tree is deep: a target of 60 kB may have 30,000 segments.
        segments = path[1:].split("/", self._depth) if path != "/" else []
        nodes = [self._root]
        for segment in segments:
            for node in nodes:
                yield from node.begun(segment)
            nodes = [child for node in nodes for child in node.next(segment)]
            if not nodes:
                return
            for node in nodes:
                yield from node.prefixes
        for node in nodes:
            yield from node.ending
