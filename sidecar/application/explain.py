"""Why a request is answered as it is: which client, which rules, what they count. Nothing is counted."""

from dataclasses import dataclass, field

from sidecar.application.failure import WithoutStore, not_known_yet
from sidecar.application.ports import CounterStore, StoreUnavailable
from sidecar.domain.decision import Decision, RuleState, decide
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

    def __init__(self, counters: CounterStore, without_store: WithoutStore) -> None:
        self.rule_set = RuleSet()
        self._without_store = without_store
        self._counters = counters

    async def explain(self, request: RequestMetadata) -> Explained:
        """While the store is away, the decision is the one made without it."""
        steps = self.rule_set.explain(request)
        if isinstance(steps.outcome, Decision):
            away = not_known_yet(steps.outcome, self.rule_set)
            decision = self._without_store.decide(()) if away else steps.outcome
            return Explained(steps, decision)
        try:
            counted = await self._counters.hit(steps.outcome, charge=False)
        except StoreUnavailable:
            return Explained(steps, self._without_store.decide(steps.outcome, charge=False))
        decision = decide(steps.outcome, counted)
        return Explained(steps, decision, {s.check.rule.id: self._shown(s) for s in decision.states})

    def _shown(self, state: RuleState) -> ExplainedState:
        check = state.check
        identifier = shown_identifier(check.rule.identifier_type, check.identifier)
        beginning = self._counters.key_beginning(check.client_id, check.rule, check.resets)
        return ExplainedState(state, identifier, beginning + identifier)
