"""The rules of one client, compiled: from a request and its path to what has to be counted.

In this order: `enforcement` and `exempt_ips`, the matching rules without those that a `final` one leaves out,
an `exempt` rule, a `block` rule, a CORS preflight that is not to be counted, and then a check for each rule
that counts.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from sidecar.domain.address import canonical_network
from sidecar.domain.algorithms import Terms
from sidecar.domain.compiled_rule import CompiledRule
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.identity import FALLBACK_SHARED, fallback_to_address
from sidecar.domain.policy import Policy
from sidecar.domain.request import Address, Network, RequestMetadata
from sidecar.domain.route import canonical_path
from sidecar.domain.route_index import RouteIndex
from sidecar.domain.rule import BLOCK, UNLIMITED, Client, Enforcement, Mode, OnMissing, Rule
from sidecar.domain.sharding import ShardBy, shard_of

#: What one call to the store may carry. Of more matching rules the most specific are counted, enforcing
#: ones first; `sidecar check` refuses configurations in which a request could meet more.
MAX_CHECKS = 64
#: Stands for all rules of a client where counters are reset.
ALL_RULES = "*"
_STRENGTH = [Enforcement.OFF, Enforcement.SHADOW, Enforcement.ON]


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """One rule whose route and method match, and what became of it."""

    rule: Rule
    applies: bool
    #: The final rule that leaves it out.
    left_out_by: str | None = None
    #: Only watched, by its own mode or by `enforcement`.
    shadow: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """What a method and a path meet, whoever asks: the rules that apply, most specific first.

    `decision` is there where they decide without counting.
    """

    path: str | None
    rules: Sequence[CompiledRule]
    decision: Decision | None


class ClientRules:
    """The rules of one client, ready to be asked: `meet`, which can be remembered, and then `checks_for`."""

    def __init__(self, client: Client, policy: Policy, resets: Mapping[str, int]) -> None:
        """`resets` names the rules whose counters were reset, and how often."""
        self.client = client
        self.resets = resets
        self._policy = policy
        self._spares_preflights = not policy.count_preflights
        self._spread = client.shard_by is ShardBy.IDENTIFIER
        enforcement = self._enforcement(policy)
        self._is_off = enforcement is Enforcement.OFF
        self._exempt: list[Network] = [canonical_network(text) for text in client.exempt_ips]
        self._is_watching = shadow = enforcement is Enforcement.SHADOW
        self._index = RouteIndex(
            CompiledRule.of(client.id, rule, policy, shadow=shadow, resets=resets.get(rule.id, 0))
            for rule in client.rules
        )

    def under(self, policy: Policy) -> "ClientRules | None":
        """These with another global switch, all else in the policy being the same.

        `None` where they have to be compiled anew: rules that are only watched are others.
        """
        enforcement = self._enforcement(policy)
        if self._is_watching is not (enforcement is Enforcement.SHADOW):
            return None
        if self._is_off is (enforcement is Enforcement.OFF):
            return self
        switched = copy(self)
        switched._is_off = not self._is_off
        return switched

    def _enforcement(self, policy: Policy) -> Enforcement:
        """The weaker one holds."""
        return min(self.client.enforcement, policy.enforcement, key=_STRENGTH.index)

    def meet(self, method: str, target: str) -> Met:
        """The query of the target makes no difference."""
        path = canonical_path(target, decode_slashes=self._policy.decode_slashes)
        matching = self._matching(method, path)
        return Met(path, matching, self._decision(matching))

    def checks_for(self, request: RequestMetadata, met: Met) -> list[Check] | Decision:
        if self._is_off:
            return Decision(True, Reason.ENFORCEMENT_OFF, self.client.id)
        if self._exempt and self._is_exempt(request.address):
            return Decision(True, Reason.EXEMPT, self.client.id)
        if met.decision is not None:
            return met.decision
        if self._spares_preflights and request.is_preflight:
            return Decision(True, Reason.EXEMPT, self.client.id)
        return self._checks(request, met)

    def passes_preflight(self, request: RequestMetadata) -> bool:
        """Whether a request that no rule blocks is not counted because it is a CORS preflight."""
        return self._spares_preflights and request.is_preflight

    def explain(self, request: RequestMetadata, path: str | None) -> list[RuleTrace]:
        """Every rule that matches, most specific first."""
        matching = self._matching_all(request.method, path)
        kept = self._without_left_out(matching)
        finals = [compiled for compiled in kept if compiled.rule.final]
        return [
            RuleTrace(
                rule=compiled.rule,
                applies=compiled in kept,
                left_out_by=None if compiled in kept else finals[0].rule.id,
                shadow=compiled.shadow,
            )
            for compiled in matching
        ]

    def _is_exempt(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._exempt)

    def _decision(self, matching: Sequence[CompiledRule]) -> Decision | None:
        """Where these rules decide without counting."""
        if not matching:
            return Decision(True, Reason.NO_POLICY, self.client.id)
        for compiled in matching:
            if compiled.rule.mode is Mode.EXEMPT:
                return Decision(True, Reason.EXEMPT, self.client.id, compiled.rule.id)
        for compiled in matching:
            if compiled.rule.mode is Mode.BLOCK and not compiled.shadow:
                return _blocked(self.client.id, compiled.rule)
        return None

    def _matching(self, method: str, path: str | None) -> list[CompiledRule]:
        """The rules that apply, most specific first."""
        matching = self._matching_all(method, path)
        return self._without_left_out(matching) if len(matching) > 1 else matching

    def _matching_all(self, method: str, path: str | None) -> list[CompiledRule]:
        found = [c for c in self._index.find(path) if c.methods is None or method in c.methods]
        if len(found) > 1:
            found.sort(key=lambda compiled: (compiled.specificity, compiled.rule.id), reverse=True)
        return found

    def _without_left_out(self, found: list[CompiledRule]) -> list[CompiledRule]:
        """Without the rules that a more specific `final` one leaves out.

        A shadow rule is there to be watched: `final` on it leaves out other shadow rules only.
        """
        for final in [compiled for compiled in found if compiled.rule.final]:
            found = [c for c in found if c.specificity >= final.specificity or final.shadow > c.shadow]
        return found

    def _checks(self, request: RequestMetadata, met: Met) -> list[Check] | Decision:
        checks: list[Check] = []
        for compiled in met.rules:
            made = self._check(compiled, request, met.path)
            if isinstance(made, Check):
                checks.append(made)
            elif made is not None:
                return made
        if not checks:
            left_alone = any(not compiled.shadow for compiled in met.rules)
            return Decision(True, Reason.EXEMPT if left_alone else Reason.ALLOWED, self.client.id)
        if len(checks) > MAX_CHECKS:
            checks = sorted(checks, key=lambda check: check.shadow)[:MAX_CHECKS]
        return _in_one_shard(checks) if self._spread else checks

    def _check(
        self, compiled: CompiledRule, request: RequestMetadata, path: str | None
    ) -> Check | Decision | None:
        """What to count for one rule; `None` where it leaves this identifier alone."""
        if not compiled.counts:  # watched only: one that is not has decided before
            return self._refused(compiled, Reason.BLOCKED)
        identifier, terms = compiled.reader.identify(request, path), compiled.terms
        if identifier is None:
            if (identifier := self._missing(compiled, request)) is None:
                return self._refused(compiled, Reason.IDENTIFIER_MISSING)
        elif compiled.overrides and (limit := compiled.override(request, path)) is not None:
            if limit == UNLIMITED:
                return None
            if limit == BLOCK:
                return self._refused(compiled, Reason.BLOCKED)
            terms = compiled.rule.terms(int(limit))
        return self._counted(compiled, identifier, terms, request.cost or 1)

    def _counted(self, compiled: CompiledRule, identifier: str, terms: Terms, times: int) -> Check:
        rule = compiled.rule
        cost = rule.cost
        if times != 1:
            # What can never fit need not be larger than the doubles of the scripts hold.
            cost = min(cost * times, 2 * terms.capacity)
        return Check(
            self.client.id,
            rule,
            identifier,
            terms.limit,
            terms.capacity,
            cost,
            compiled.shadow,
            compiled.resets,
            None,
            shard_of(identifier) if self._spread else "",
        )

    def _refused(self, compiled: CompiledRule, reason: Reason) -> Decision | Check:
        if compiled.would_refuse is not None:
            return compiled.would_refuse
        return Decision(False, reason, self.client.id, compiled.rule.id)

    def _missing(self, compiled: CompiledRule, request: RequestMetadata) -> str | None:
        match compiled.on_missing:
            case OnMissing.IP:
                return fallback_to_address(request.address, self._policy.identity)
            case OnMissing.SHARED:
                return FALLBACK_SHARED
            case OnMissing.DENY:
                return None


def resets_of(resets: Mapping[tuple[str, str], int], client_id: str, rule_id: str) -> int:
    """Those of the rule, and those of all of the client's rules."""
    return resets.get((client_id, rule_id), 0) + resets.get((client_id, ALL_RULES), 0)


def _in_one_shard(checks: list[Check]) -> list[Check]:
    """All that count are of one identifier, and so in one; what counts nobody goes with them."""
    shard = max(check.shard for check in checks)
    return [check if check.shard == shard else replace(check, shard=shard) for check in checks]


def _blocked(client_id: str, rule: Rule) -> Decision:
    return Decision(False, Reason.BLOCKED, client_id, rule.id, refusal=rule.response)
