"""One rule with all that is known of it before there is a request."""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.domain.algorithms import Algorithm, Terms
from sidecar.domain.decision import Check
from sidecar.domain.identity import EVERYONE, IdentifierReader
from sidecar.domain.policy import Policy
from sidecar.domain.request import RequestMetadata
from sidecar.domain.route import RoutePattern
from sidecar.domain.rule import Mode, OnMissing, Rule


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    rule: Rule
    pattern: RoutePattern
    methods: frozenset[str] | None
    #: Whether it has counters; a rule of another mode decides by itself.
    counts: bool
    shadow: bool
    on_missing: OnMissing
    reader: IdentifierReader
    overrides: Mapping[tuple[str, ...], int | str]
    specificity: tuple[tuple[int, int], bool]
    resets: int
    #: Of whoever has no override.
    terms: Terms
    #: What stands for a refusal that is only watched: a check that never fits, and so is reported as refused.
    would_refuse: Check | None

    @classmethod
    def of(cls, client_id: str, rule: Rule, policy: Policy, *, shadow: bool, resets: int) -> "CompiledRule":
        pattern = RoutePattern.parse(rule.route)
        methods = rule.methods
        reader = IdentifierReader(rule.identifier_type, dict(pattern.parameters), policy.identity)
        shadow = shadow or rule.mode is Mode.SHADOW
        return cls(
            rule=rule,
            pattern=pattern,
            methods=methods,
            counts=rule.counts,
            shadow=shadow,
            on_missing=rule.on_missing or policy.on_missing,
            reader=reader,
            overrides={reader.parse(name): limit for name, limit in rule.overrides.items()},
            specificity=(pattern.specificity, methods is not None),
            resets=resets,
            terms=rule.terms(),
            would_refuse=_never_fits(client_id, rule) if shadow else None,
        )

    def override(self, request: RequestMetadata, path: str | None) -> int | str | None:
        """What the rule says of this caller alone."""
        values = self.reader.values(request, path)
        return None if values is None else self.overrides.get(values)


def _never_fits(client_id: str, rule: Rule) -> Check:
    stand_in = Rule(
        id=rule.id,
        route=rule.route,
        identifier_type="none",
        algorithm=Algorithm.FIXED_WINDOW,
        limit=1,
        window_seconds=1,
    )
    return Check(client_id, stand_in, EVERYONE, limit=1, capacity=1, cost=2, shadow=True)
