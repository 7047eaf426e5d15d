"""What the tests of counters share: a clock to set, rules and checks in a line, the stores they run on."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from sidecar.domain.algorithms import SECOND_US, Algorithm
from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Counted
from sidecar.domain.rule import Rule
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.calling import Script
from sidecar.infrastructure.redis.connection import Store, connect
from sidecar.infrastructure.redis.counters import RedisCounterStore

#: A midnight: intervals of a minute, an hour and a day begin here.
START = 1_699_920_000 * SECOND_US
#: What an answer may take before a test fails; nothing is measured by it.
PATIENCE_SECONDS = 30.0
_EXPIRY = "local function expiry(us)"


class Clock:
    """Stands where it was set, in microseconds since the epoch."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def at(self, seconds: float) -> None:
        """So many seconds after `START`."""
        self.now = START + round(seconds * SECOND_US)


class Counts(Protocol):
    """What a `CounterStore` decides by; the model has no more of it."""

    def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Awaitable[Counted]: ...


class MemoryStore:
    """The model, asked like a store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counters = MemoryCounters()

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        return self._counters.hit(checks, self._clock(), charge=charge)


@asynccontextmanager
async def undying_store(url: str, prefix: str, clock: Clock) -> AsyncIterator[RedisCounterStore]:
    """A store for tests that set the clock at will: its counters live for an hour of the server's.

    A counter of a stopped clock may be due within a millisecond by the server's, which goes on: whether it
    is still there for the next call would be chance. Expiries are tested without it.
    """
    source = scripts.hit()
    assert source.count(_EXPIRY) == 1, "the script's expiry is written otherwise now"
    async with connected(url) as redis:
        store = store_on(redis, prefix, clock)
        store._script = Script(source.replace(_EXPIRY, f"{_EXPIRY}\n  do return '3600000' end"))
        yield store


@asynccontextmanager
async def connected(url: str, give_up_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[Store]:
    """As the product is, to one server or to several."""
    redis = connect(url, give_up_seconds)
    try:
        yield redis
    finally:
        await redis.aclose()


def store_on(redis: Store, prefix: str, clock: Clock | None = None) -> RedisCounterStore:
    return RedisCounterStore(redis, prefix=prefix, timeout_seconds=PATIENCE_SECONDS, clock=clock)


def rule(
    algorithm: Algorithm, limit: int, window: int = 60, *, burst: int | None = None, name: str = "r"
) -> Rule:
    return Rule(
        id=name,
        route="/*",
        identifier_type="none",
        algorithm=algorithm,
        limit=limit,
        window_seconds=window,
        burst=burst,
    )


def check(counted: Rule, cost: int = 1, *, shadow: bool = False, identifier: str = "=") -> Check:
    terms = counted.terms()
    return Check("c", counted, identifier, terms.limit, terms.capacity, cost, shadow)


def key_of(prefix: str, counted: Rule, identifier: str = "=") -> str:
    """The counter's key, as the contract has it."""
    return f"{prefix}:v1:{{c}}:{counted.id}:{counted.generation}:{identifier}"


def used(counted: Counted) -> list[int]:
    return [usage.used for usage in counted.usages]
