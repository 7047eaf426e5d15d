"""Counters in memory: the model of what the store does with the checks of one request.

All or nothing, in the same order as the scripts in Redis, with `now` passed in. With `room` and `coarse` it
takes bounded memory and time, and so can count where there is no store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.domain.algorithms import MODELS, Algorithm, CounterView, State, Terms
from sidecar.domain.decision import Check, Counted, Usage

CounterKey = tuple[str, str, str, int, str]

#: An exact sliding window keeps an entry for each moment; a coarse one has so many moments.
MOMENTS = 128


@dataclass(frozen=True, slots=True)
class Room:
    """How much is kept: so many counters, and so many numbers in the states of all together."""

    counters: int
    numbers: int


class MemoryCounters:
    """The counters of all checks seen, as `CounterStore.hit` describes them.

    Where they need more than `room`, those are forgotten that were charged longest ago. A `coarse` sliding
    window rounds moments up to a fraction of its window, and is longer by that: it never admits more than an
    exact one would.
    """

    def __init__(self, *, room: Room | None = None, coarse: bool = False) -> None:
        self._states: dict[CounterKey, State] = {}
        self._numbers = 0
        self._room = room
        self._coarse = coarse

    @property
    def taken(self) -> Room:
        """What is kept at the moment."""
        return Room(len(self._states), self._numbers)

    def hit(self, checks: Sequence[Check], now_us: int, *, charge: bool) -> Counted:
        """Decide and, if all enforcing checks fit, charge them, and then each shadow check that fits."""
        checks = [self._counted(check, now_us) for check in checks]
        before = [_usage(check, self._view(check, now_us), now_us) for check in checks]
        admitted = all(usage.fits or check.shadow for check, usage in zip(checks, before, strict=True))
        if not (admitted and charge):
            return Counted(admitted, now_us, before)
        usages = [
            self._charge(check, now_us) if usage.fits else usage
            for check, usage in zip(checks, before, strict=True)
        ]
        return Counted(True, now_us, usages)

    def _counted(self, check: Check, now_us: int) -> Check:
        """A newcomer is somebody else where the check says so."""
        if check.instead is None or self._view(check, now_us).used:
            return check
        return replace(check, identifier=check.instead, instead=None)

    def _view(self, check: Check, now_us: int) -> CounterView:
        model, terms = MODELS[check.rule.algorithm], check.rule.terms(check.limit)
        if self._coarse and check.rule.algorithm is Algorithm.SLIDING_WINDOW:
            now_us, terms = _coarser(now_us, terms)
        return model.at(self._states.get(_key(check)), now_us, terms)

    def _charge(self, check: Check, now_us: int) -> Usage:
        key = _key(check)
        charged = self._view(check, now_us).charged(check.cost)
        self._forget(key)
        self._states[key] = charged  # at the end: the first one is that of the longest time ago
        self._numbers += len(charged)
        self._make_room()
        after = _usage(check, self._view(check, now_us), now_us)
        return Usage(True, after.used, 0, after.reset_us)

    def _make_room(self) -> None:
        room = self._room
        while room and (len(self._states) > room.counters or self._numbers > room.numbers):
            self._forget(next(iter(self._states)))

    def _forget(self, key: CounterKey) -> None:
        self._numbers -= len(self._states.pop(key, ()))


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
