"""Counters in Redis: all checks of one request in one script call.

Keys are `{prefix}:v1:{client}:rule:generation:identifier`, the client in braces so that in a cluster all
counters of a client share a slot. Client and rule ids have no colon, and the identifier comes last, so two
different counters never have the same key. `v1` is the layout of states: an incompatible one gets another,
so that old and new replicas can run side by side.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from redis.asyncio import Redis

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted, Usage
from sidecar.domain.rule import Rule
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.connection import translated
from sidecar.infrastructure.redis.script import Script

LAYOUT = "v1"
#: Keys that one step of a search looks at.
SCAN_KEYS = 1000


class RedisCounterStore:
    """The `CounterStore` on Redis 6.2 or newer, or Valkey.

    `timeout_seconds` bounds a whole call: waiting for a connection, connecting, the answer. `observe` gets
    the seconds that each answered call took. `clock` stands in for the server's clock in tests.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str,
        timeout_seconds: float,
        observe: Callable[[float], None] = lambda seconds: None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._redis = redis
        self._hit = Script(redis, scripts.hit())
        self._prefix = prefix
        self._timeout = timeout_seconds
        self._observe = observe
        self._clock = clock

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        now = self._clock() if self._clock else ""
        arguments = [now, int(charge), *(value for check in checks for value in _arguments(check))]
        started = time.perf_counter()
        with translated():
            async with asyncio.timeout(self._timeout):
                reply = await self._hit([self._key(check) for check in checks], arguments)
        self._observe(time.perf_counter() - started)
        return _counted(reply, len(checks))

    async def forget(self, checks: Sequence[Check]) -> int:
        with translated():
            return int(await self._redis.unlink(*[self._key(check) for check in checks]))

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int
    ) -> tuple[int, list[str]]:
        begin = self._begin(client_id, rule, resets)
        with translated():
            # "." and "-" are no wildcards, braces neither; ids and prefix have nothing else that is special.
            following, keys = await self._redis.scan(cursor, match=f"{begin}*", count=SCAN_KEYS)
        return int(following), [_text(key).removeprefix(begin) for key in keys]

    def _key(self, check: Check) -> str:
        return self._begin(check.client_id, check.rule, check.resets) + check.identifier

    def _begin(self, client_id: str, rule: Rule, resets: int) -> str:
        generation = f"{rule.generation}.{resets}" if resets else rule.generation
        return f"{self._prefix}:{LAYOUT}:{{{client_id}}}:{rule.id}:{generation}:"


def _text(key: bytes | str) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key


def _arguments(check: Check) -> Iterator[str | int]:
    terms = check.rule.terms(check.limit)
    yield check.rule.algorithm.value
    yield int(check.shadow)
    yield check.capacity
    # Lua would read 2^53 + 1 as 2^53; twice the capacity fits no more than any other cost above it.
    yield check.cost if check.cost <= check.capacity else 2 * check.capacity
    yield terms.window_us
    yield from terms.refill if check.rule.algorithm is Algorithm.TOKEN_BUCKET else (0, 0)


def _counted(reply: list[int], checks: int) -> Counted:
    if len(reply) != 2 + 4 * checks:
        raise StoreUnavailable(f"the script answered {len(reply)} numbers for {checks} checks")
    now_us, admitted = reply[:2]
    usages = [
        Usage(bool(fits), used, None if retry < 0 else retry, reset)
        for fits, used, retry, reset in zip(*(reply[2 + i :: 4] for i in range(4)), strict=True)
    ]
    return Counted(bool(admitted), now_us, usages)
