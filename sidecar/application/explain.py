"""Why a request is answered as it is: which client, which rules, what they count. Nothing is counted."""

from dataclasses import dataclass, field, replace

from sidecar.application.census import Census
from sidecar.application.failure import WithoutStore, not_known_yet
from sidecar.application.ports import CounterStore, StoreUnavailable
from sidecar.domain.decision import Check, Decision, RuleState, decide
from sidecar.domain.identity import shown_identifier
from sidecar.domain.request import RequestMetadata
from sidecar.domain.ruleset import Explanation, RuleSet


@dataclass(frozen=True, slots=True)
class ExplainedState:
    """One rule's numbers, its identifier and key as they may be shown."""

    state: RuleState
    identifier: str
    key: str


@dataclass(frozen=True, slots=True)
class Explained:
    """How a request is decided, and the decision that it would get now."""

    steps: Explanation
    decision: Decision
    states: dict[str, ExplainedState] = field(default_factory=dict)


class Explainer:
    """Decides described requests without charging them."""

    def __init__(self, counters: CounterStore, without_store: WithoutStore, census: Census) -> None:
        self.rule_set = RuleSet()
        self._census = census
        self._without_store = without_store
        self._counters = counters

    async def explain(self, request: RequestMetadata) -> Explained:
        """While the store is away, the decision is the one made without it."""
        steps = self.rule_set.explain(request)
        if isinstance(steps.outcome, Decision):
            away = not_known_yet(steps.outcome, self.rule_set)
            decision = self._without_store.decide(()) if away else steps.outcome
            return Explained(steps, decision)
        checks = self._census.checks(steps.outcome, request)
        try:
            checks = await self._resolved(checks)
            counted = await self._counters.hit(checks, charge=False)
        except StoreUnavailable:
            return Explained(steps, self._without_store.decide(checks, charge=False))
        decision = decide(checks, counted)
        return Explained(steps, decision, {s.check.rule.id: self._shown(s) for s in decision.states})

    async def _resolved(self, checks: list[Check]) -> list[Check]:
        """The checks of those who are counted in the end: a newcomer to a crowded rule is somebody else."""
        if all(check.instead is None for check in checks):
            return checks
        own = [replace(check, instead=None) for check in checks]
        counted = await self._counters.hit(own, charge=False)
        return [
            replace(mine, identifier=check.instead) if check.instead and not usage.used else mine
            for check, mine, usage in zip(checks, own, counted.usages, strict=True)
        ]

    def _shown(self, state: RuleState) -> ExplainedState:
        check = state.check
        identifier = shown_identifier(check.rule.identifier_type, check.identifier)
        beginning = self._counters.key_beginning(check.tag, check.rule, check.resets)
        return ExplainedState(state, identifier, beginning + identifier)
