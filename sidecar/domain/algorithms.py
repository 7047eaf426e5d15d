"""The exact model of each algorithm, with `now` passed in.

It is the reference that the Redis scripts are compared with, step by step, and what counts in memory. Each
algorithm is a view of one counter at one moment: `at` reads a state, `used` and `when_at_most` answer,
`charged` gives the next state. States are plain tuples of integers; looking never changes one.

Integers throughout: microseconds since the epoch, units of the limit. The scripts have doubles, which hold
integers up to 2^53, so `problems` refuses what would leave that range. For each counter the clock never
runs backwards: a view's `now` is at least the moment of the last charge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, gcd, isqrt
from typing import Protocol, Self

SECOND_US = 1_000_000
MAX_INTEGER = 2**53
#: An exact sliding window keeps an entry for each admitted request.
MAX_SLIDING_WINDOW_LIMIT = 100_000

State = tuple[int, ...]


class Algorithm(StrEnum):
    SLIDING_WINDOW = "sliding_window"
    SLIDING_WINDOW_COUNTER = "sliding_window_counter"
    FIXED_WINDOW = "fixed_window"
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - no password


@dataclass(frozen=True, slots=True)
class Terms:
    """What a counter is held to: `limit` per `window_us`, of which `capacity` may be used at once."""

    limit: int
    capacity: int
    window_us: int

    @property
    def refill(self) -> tuple[int, int]:
        """Tokens gained and microseconds that takes, without common divisor."""
        divisor = gcd(self.limit, self.window_us)
        return self.limit // divisor, self.window_us // divisor


class CounterView(Protocol):
    """One counter at one moment."""

    @classmethod
    def at(cls, state: State | None, now: int, terms: Terms) -> Self: ...

    @property
    def used(self) -> int:
        """Units in use, rounded up."""

    def when_at_most(self, units: int) -> int:
        """The moment at which no more than `units` (fewer than are used, at least 0) will be in use."""

    def charged(self, cost: int) -> State:
        """The state after `cost` more units."""


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Exact: an entry counts from its moment until one window later, that moment excluded.

    State: moment and cost of each entry, flattened, in order.
    """

    now: int
    terms: Terms
    entries: tuple[tuple[int, int], ...]

    @classmethod
    def at(cls, state: State | None, now: int, terms: Terms) -> Self:
        entries = tuple(zip(state[::2], state[1::2], strict=True)) if state else ()
        now = max(now, entries[-1][0] if entries else 0)
        return cls(now, terms, tuple(e for e in entries if e[0] + terms.window_us > now))

    @property
    def used(self) -> int:
        return sum(cost for _, cost in self.entries)

    def when_at_most(self, units: int) -> int:
        left = self.used
        for moment, cost in self.entries:
            left -= cost
            if left <= units:
                return moment + self.terms.window_us
        return self.now

    def charged(self, cost: int) -> State:
        """What came at one moment goes at one moment, so it is one entry."""
        entries = self.entries
        if entries and entries[-1][0] == self.now:
            entries, cost = entries[:-1], entries[-1][1] + cost
        return tuple(number for entry in (*entries, (self.now, cost)) for number in entry)


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """A count per interval, intervals aligned to the epoch. State: index of the interval, its count."""

    terms: Terms
    index: int
    count: int

    @classmethod
    def at(cls, state: State | None, now: int, terms: Terms) -> Self:
        index, count = state or (0, 0)
        current = now // terms.window_us
        return cls(terms, index, count) if index >= current else cls(terms, current, 0)

    @property
    def used(self) -> int:
        return self.count

    def when_at_most(self, units: int) -> int:
        return (self.index + 1) * self.terms.window_us

    def charged(self, cost: int) -> State:
        return self.index, self.count + cost


@dataclass(frozen=True, slots=True)
class SlidingWindowCounter:
    """Approximate, constant in size: the count of this interval, and of the one before by what of it is
    still inside the window. As in Cloudflare's "How we built rate limiting capable of scaling to millions
    of domains" (2017), but weighed in whole milliseconds and rounded up.

    State: moment of the last charge, count of its interval, count of the one before.
    """

    terms: Terms
    now: int
    index: int
    count: int
    before: int

    @classmethod
    def at(cls, state: State | None, now: int, terms: Terms) -> Self:
        then, count, before = state or (0, 0, 0)
        now = max(now, then)
        passed = now // terms.window_us - then // terms.window_us
        if passed:
            before, count = count if passed == 1 else 0, 0
        return cls(terms, now, now // terms.window_us, count, before)

    @property
    def _window_ms(self) -> int:
        return self.terms.window_us // 1000

    @property
    def used(self) -> int:
        elapsed_ms = (self.now - self.index * self.terms.window_us) // 1000
        return self.count + -(-self.before * (self._window_ms - elapsed_ms) // self._window_ms)

    def when_at_most(self, units: int) -> int:
        start, weighed, most = self.index * self.terms.window_us, self.before, units - self.count
        if most < 0:  # only once this interval is the one before
            start, weighed, most = start + self.terms.window_us, self.count, units
        return start + (self._window_ms - most * self._window_ms // weighed) * 1000

    def charged(self, cost: int) -> State:
        return self.now, self.count + cost, self.before


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Refills steadily and holds `capacity`; what is kept is what is missing, so a raised burst is usable
    at once.

    With `gained` tokens in `unit` microseconds (no common divisor), a token is `unit` parts and `gained`
    parts come back each microsecond. State: missing parts, parts in a token, moment.
    """

    now: int
    terms: Terms
    missing: int

    @classmethod
    def at(cls, state: State | None, now: int, terms: Terms) -> Self:
        gained, unit = terms.refill
        missing, old_unit, then = state or (0, unit, 0)
        now = max(now, then)
        if old_unit != unit:  # the limit has changed, and with it the size of a part
            missing = missing // old_unit * unit + min(unit, ceil(missing % old_unit / old_unit * unit))
        missing = min(missing, terms.capacity * unit)
        return cls(now, terms, max(0, missing - (now - then) * gained))

    @property
    def used(self) -> int:
        return -(-self.missing // self.terms.refill[1])

    def when_at_most(self, units: int) -> int:
        gained, unit = self.terms.refill
        return self.now - (units * unit - self.missing) // gained

    def charged(self, cost: int) -> State:
        unit = self.terms.refill[1]
        return self.missing + cost * unit, unit, self.now


MODELS: dict[Algorithm, type[CounterView]] = {
    Algorithm.SLIDING_WINDOW: SlidingWindow,
    Algorithm.SLIDING_WINDOW_COUNTER: SlidingWindowCounter,
    Algorithm.FIXED_WINDOW: FixedWindow,
    Algorithm.TOKEN_BUCKET: TokenBucket,
}


def problems(algorithm: Algorithm, terms: Terms) -> Iterator[str]:
    """What keeps `terms` from being counted exactly, each naming the largest limit that works."""
    largest = _largest_limit(algorithm, terms)
    if algorithm is Algorithm.TOKEN_BUCKET and terms.capacity != terms.limit:
        largest_burst = MAX_INTEGER // terms.refill[1]
        if terms.capacity > largest_burst:
            yield (
                f"a burst of {terms.capacity} with this limit and window is more than can be counted "
                f"exactly; the largest that works is {largest_burst}"
            )
    elif terms.limit > largest:
        yield (
            f"{terms.limit} is more than {algorithm} can count exactly in this window; "
            f"the largest limit that works is {largest}"
        )


def _largest_limit(algorithm: Algorithm, terms: Terms) -> int:
    match algorithm:
        case Algorithm.SLIDING_WINDOW:
            return MAX_SLIDING_WINDOW_LIMIT
        case Algorithm.SLIDING_WINDOW_COUNTER:
            return MAX_INTEGER // (terms.window_us // 1000)
        case Algorithm.FIXED_WINDOW:
            return MAX_INTEGER
        case Algorithm.TOKEN_BUCKET:
            return _largest_refill(terms)


def _largest_refill(terms: Terms) -> int:
    """The largest limit up to the wanted one for which limit * window / gcd(limit, window) fits.

    A limit works when it has a large enough divisor in common with the window: for each divisor of the
    window, its largest multiple that fits.
    """
    if terms.limit * terms.refill[1] <= MAX_INTEGER:
        return terms.limit
    best = 0
    for of_seconds in _divisors(terms.window_us // SECOND_US):
        for of_second in _divisors(SECOND_US):
            divisor = of_seconds * of_second
            most = min(terms.limit, MAX_INTEGER // (terms.window_us // divisor))
            best = max(best, most // divisor * divisor)
    return best


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return [*small, *(number // divisor for divisor in small)]
