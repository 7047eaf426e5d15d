"""Counters in memory: the model of what the store does with the checks of one request.

All or nothing, in the same order as the scripts in Redis, with `now` passed in. With `most` and `coarse` it
takes bounded memory and time, and so can count where there is no store.
"""

from collections.abc import Sequence
from dataclasses import replace

from sidecar.domain.algorithms import MODELS, Algorithm, CounterView, State, Terms
from sidecar.domain.decision import Check, Counted, Usage

CounterKey = tuple[str, str, str, int, str]

#: An exact sliding window keeps an entry for each moment; a coarse one has so many moments.
MOMENTS = 128


class MemoryCounters:
    """The counters of all checks seen, as `CounterStore.hit` describes them.

    Of more than `most` counters the one that was charged longest ago is forgotten. A `coarse` sliding window
    rounds moments up to a fraction of its window, and is longer by that: it never admits more than an exact
    one would.
    """

    def __init__(self, *, most: int | None = None, coarse: bool = False) -> None:
        self._states: dict[CounterKey, State] = {}
        self._most = most
        self._coarse = coarse

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
        model, terms = MODELS[check.rule.algorithm], check.rule.terms(check.limit)
        if self._coarse and check.rule.algorithm is Algorithm.SLIDING_WINDOW:
            now_us, terms = _coarser(now_us, terms)
        return model.at(self._states.get(_key(check)), now_us, terms)

    def _charge(self, check: Check, now_us: int) -> Usage:
        key = _key(check)
        charged = self._view(check, now_us).charged(check.cost)
        self._states.pop(key, None)
        self._states[key] = charged
        if self._most is not None and len(self._states) > self._most:
            del self._states[next(iter(self._states))]
        after = _usage(check, self._view(check, now_us), now_us)
        return Usage(True, after.used, 0, after.reset_us)


def _coarser(now_us: int, terms: Terms) -> tuple[int, Terms]:
    step = max(1, terms.window_us // MOMENTS)
    return -(-now_us // step) * step, replace(terms, window_us=terms.window_us + step)


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
