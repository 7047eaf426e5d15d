"""Refusals that the store need not be asked about again: a flood on a key that is used up.

A limit that is reached stays so until its retry moment, whatever others do meanwhile, unless somebody edits
the rule or resets its counters. Until then, and for a second at most, the same request of the same caller is
refused from memory, with the numbers that the store would give: only time has passed for them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sidecar.domain.algorithms import SECOND_US
from sidecar.domain.decision import Check, Counted, Decision, RuleState, Usage, decide, refused_by
from sidecar.domain.values import per_request

#: Those that are remembered at most; of more, the oldest are forgotten.
MAX_REFUSALS = 10_000
#: For longer, a reset on another replica might be overlooked.
MAX_SECONDS = 1.0

Key = tuple[str, str, str, int]
#: The moment, and how often everything was forgotten until then.
Asked = tuple[float, int]


@per_request()
class _Refusal:
    usage: Usage
    cost: int
    #: By the clock in here: when the store had answered, and until when this holds.
    answered: float
    until: float
    #: By the store's clock.
    now_us: int


class RecentRefusals:
    """Refusals of the last second; `clear` ends them all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refusals: dict[Key, _Refusal] = {}
        self._cleared = 0
        #: When the last of them ends.
        self._end = 0.0

    def before_asking(self) -> Asked:
        """What `remember` needs: made before the store is asked, for time runs on meanwhile."""
        return self._clock(), self._cleared

    def clear(self) -> None:
        """Also of what the store is being asked at the moment: its answer may be from before."""
        self._refusals.clear()
        self._cleared += 1

    def find(self, checks: Sequence[Check]) -> Decision | None:
        """The decision about these checks, if one of their rules is known to refuse."""
        if not self._refusals:
            return None
        now = self._clock()
        if now >= self._end:  # a moment without refusals: who is allowed need not look for any
            self._refusals.clear()
            return None
        known = [(check, found) for check in checks if (found := self._find(check, now))]
        if not known:
            return None
        if len(known) == 1:
            check, found = known[0]
            passed_us = _passed_us(found, now)
            return refused_by(check, _later(found.usage, passed_us), found.now_us + passed_us)
        usages = [_later(found.usage, _passed_us(found, now)) for _, found in known]
        decision = decide([check for check, _ in known], Counted(False, 0, usages))
        # By the clock that the shown numbers are of: together they are the same moment each time.
        shown = next(found for check, found in known if decision.shown and check is decision.shown.check)
        return replace(decision, now_us=shown.now_us + _passed_us(shown, now))

    def remember(self, decision: Decision, asked: Asked) -> None:
        """Of a decision that the store made, what refuses."""
        moment, cleared = asked
        if cleared != self._cleared:
            return
        for state in decision.states:
            if not state.check.shadow and not state.usage.fits and state.check.instead is None:
                self._remember(state, decision.now_us, moment)

    def _find(self, check: Check, now: float) -> _Refusal | None:
        found = self._refusals.get((check.client_id, check.rule.id, check.identifier, check.limit))
        if found is None or found.until <= now or found.cost != check.cost:
            return None
        return None if check.shadow or check.instead is not None else found

    def _remember(self, state: RuleState, now_us: int, asked: float) -> None:
        """Until the retry moment as counted from before the asking, which is never too long; what is shown is
        counted from the answer, which is never too short.
        """
        retry_us = state.usage.retry_us
        seconds = MAX_SECONDS if retry_us is None else min(MAX_SECONDS, retry_us / SECOND_US)
        check = state.check
        key = check.client_id, check.rule.id, check.identifier, check.limit
        until = asked + seconds
        self._end = max(self._end, until)
        self._refusals.pop(key, None)
        self._refusals[key] = _Refusal(state.usage, check.cost, self._clock(), until, now_us)
        if len(self._refusals) > MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]


def _later(usage: Usage, passed_us: int) -> Usage:
    """The usage at this moment: waiting as long as it says is enough."""
    retry_us, reset_us = usage.retry_us, usage.reset_us - passed_us
    if retry_us is not None:
        retry_us = retry_us - passed_us if retry_us > passed_us else 1
    return Usage(False, usage.used, retry_us, reset_us if reset_us > 0 else 1)


def _passed_us(refusal: _Refusal, now: float) -> int:
    return int((now - refusal.answered) * SECOND_US)
