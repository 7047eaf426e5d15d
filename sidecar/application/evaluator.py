"""The main path: a request in, a decision out."""

from sidecar.application.census import Census
from sidecar.application.failure import WithoutStore, not_known_yet
from sidecar.application.ports import CounterStore, Observer, StoreUnavailable
from sidecar.domain.decision import Check, Decision, decide
from sidecar.domain.request import RequestMetadata
from sidecar.domain.ruleset import RuleSet


class RateLimitEvaluator:
    """Decides requests by the current rules; `rule_set` is replaced whole, between two requests."""

    def __init__(
        self, counters: CounterStore, observer: Observer, without_store: WithoutStore, census: Census
    ) -> None:
        self.rule_set = RuleSet()
        self._without_store = without_store
        self._census = census
        self._counters = counters
        self._observer = observer

    async def evaluate(self, request: RequestMetadata) -> Decision:
        """Always a decision: a store that is away is one of the things decided about."""
        checks = self.rule_set.checks_for(request)
        decision = checks if isinstance(checks, Decision) else await self._count(checks, request)
        if not_known_yet(decision, self.rule_set):
            decision = self._without_store.decide(())
        self._observer.decided(request, decision)
        return decision

    async def _count(self, checks: list[Check], request: RequestMetadata) -> Decision:
        checks = self._census.checks(checks, request)
        charge = request.cost > 0
        try:
            counted = await self._counters.hit(checks, charge=charge)
        except StoreUnavailable:
            return self._without_store.decide(checks, charge=charge)
        return decide(checks, counted)
