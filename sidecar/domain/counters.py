"""Counters in memory: the model of what the store does with the checks of one request.

All or nothing, in the same order as the scripts in Redis, with `now` passed in.
"""

from collections.abc import Sequence

from sidecar.domain.algorithms import MODELS, CounterView, State
from sidecar.domain.decision import Check, Counted, Usage

CounterKey = tuple[str, str, str, int, str]


class MemoryCounters:
    """The counters of all checks seen, as `CounterStore.hit` describes them."""

    def __init__(self) -> None:
        self._states: dict[CounterKey, State] = {}

    def hit(self, checks: Sequence[Check], now_us: int, *, charge: bool) -> Counted:
        """Decide and, if all enforcing checks fit, charge them, and then each shadow check that fits."""
        before = [_usage(check, self._view(check, now_us), now_us) for check in checks]
        admitted = all(usage.fits or check.shadow for check, usage in zip(checks, before, strict=True))
        if not (admitted and charge):
            return Counted(admitted, now_us, before)
        usages = [
            self._charge(check, now_us) if usage.fits else usage
            for check, usage in zip(checks, before, strict=True)
        ]
        return Counted(True, now_us, usages)

    def _view(self, check: Check, now_us: int) -> CounterView:
        model = MODELS[check.rule.algorithm]
        return model.at(self._states.get(_key(check)), now_us, check.rule.terms(check.limit))

    def _charge(self, check: Check, now_us: int) -> Usage:
        self._states[_key(check)] = self._view(check, now_us).charged(check.cost)
        after = _usage(check, self._view(check, now_us), now_us)
        return Usage(True, after.used, 0, after.reset_us)


def _key(check: Check) -> CounterKey:
    return check.client_id, check.rule.id, check.rule.generation, check.resets, check.identifier


def _usage(check: Check, view: CounterView, now_us: int) -> Usage:
    used, capacity = view.used, check.capacity
    fits = check.cost <= capacity - used
    retry: int | None = 0
    if check.cost > capacity:
        retry = None
    elif not fits:
        retry = view.when_at_most(capacity - check.cost) - now_us
    reset = view.when_at_most(min(used, capacity) - 1) - now_us if used else 0
    return Usage(fits, used, retry, reset)
