"""The main path: a request in, a decision out."""

import asyncio
import logging
from collections.abc import Callable

from sidecar.application.census import Census
from sidecar.application.failure import WithoutStore, not_known_yet
from sidecar.application.ports import CounterStore, Observer, StoreUnavailable
from sidecar.application.recent_refusals import Asked, RecentRefusals
from sidecar.domain.decision import Check, Counted, Decision, decide
from sidecar.domain.request import RequestMetadata
from sidecar.domain.ruleset import RuleSet

_log = logging.getLogger("sidecar.decisions")


class RateLimitEvaluator:
    """Decides requests by the current rules, which are replaced whole, between two requests."""

    def __init__(
        self, counters: CounterStore, observer: Observer, without_store: WithoutStore, census: Census
    ) -> None:
        self._rule_set = RuleSet()
        self._without_store = without_store
        self._census = census
        self._recent = RecentRefusals()
        self._counters = counters
        self._observer = observer

    @property
    def rule_set(self) -> RuleSet:
        return self._rule_set

    @rule_set.setter
    def rule_set(self, rule_set: RuleSet) -> None:
        self._rule_set = rule_set
        self.counters_were_reset()

    def counters_were_reset(self) -> None:
        """What was refused lately may be allowed now."""
        self._recent.clear()

    def decide(self, request: RequestMetadata, then: Callable[[Decision], None]) -> None:
        """Calls `then` with the decision, at once or when the store has answered.

        Always a decision: a store that is away is one of the things decided about.
        """
        checks = self._rule_set.checks_for(request)
        if not isinstance(checks, Decision):
            self._count(self._census.checks(checks, request), request, then)
            return
        if not_known_yet(checks, self._rule_set):
            checks = self._without_store.decide(())
        self._tell(request, checks, then)

    async def evaluate(self, request: RequestMetadata) -> Decision:
        """The same for callers that wait."""
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.decide(request, lambda decision: None if decided.done() else decided.set_result(decision))
        return await decided

    def _count(self, checks: list[Check], request: RequestMetadata, then: Callable[[Decision], None]) -> None:
        if refused := self._recent.find(checks):
            self._tell(request, refused, then)
            return
        charge, asked = request.cost > 0, self._recent.before_asking()

        def answered(outcome: Counted | Exception) -> None:
            self._tell(request, self._decided(checks, outcome, charge, asked), then)

        self._counters.hit_then(checks, answered, charge=charge)

    def _decided(
        self,
        checks: list[Check],
        outcome: Counted | Exception,
        charge: bool,
        asked: Asked,
    ) -> Decision:
        if isinstance(outcome, Counted):
            try:
                if charge:
                    self._census.counted(checks, outcome)
                decision = decide(checks, outcome)
                if not decision.allowed:
                    self._recent.remember(decision, asked)
                return decision  # noqa: TRY300 an `else` would say no more
            except Exception:  # whatever it is, the request waits for a decision
                _log.exception("a request could not be counted")
        elif not isinstance(outcome, StoreUnavailable):
            _log.error("a request could not be counted", exc_info=outcome)
        return self._without_store.decide(checks, charge=charge)

    def _tell(self, request: RequestMetadata, decision: Decision, then: Callable[[Decision], None]) -> None:
        try:
            self._observer.decided(request, decision)
        except Exception:
            _log.exception("a decision could not be counted or logged")
        then(decision)
