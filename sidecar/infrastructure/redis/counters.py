"""Counters in Redis: all checks of one request, and of others at the same time, in one script call.

Keys are `{prefix}:v1:{client}:rule:generation:identifier`, the client in braces so that in a cluster all
counters of a client share a slot. Client and rule ids have no colon, and the identifier comes last, so two
different counters never have the same key. `v1` is the layout of states: an incompatible one gets another,
so that old and new replicas can run side by side.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted, Usage
from sidecar.domain.rule import Rule
from sidecar.domain.ruleset import MAX_CHECKS
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.connection import translated
from sidecar.infrastructure.redis.deadlines import Deadlines
from sidecar.infrastructure.redis.script import Script

LAYOUT = "v1"
#: Calls under way at once; enough to keep the server busy, few enough that a flood gathers in them.
MAX_CALLS = 4
#: Keys that one step of a search looks at.
SCAN_KEYS = 1000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One request on its way."""

    checks: Sequence[Check]
    charge: bool
    answer: asyncio.Future[Counted]


class RedisCounterStore:
    """The `CounterStore` on Redis 6.2 or newer, or Valkey.

    Requests of one turn of the event loop travel together; while calls are under way, more gather. So a flood
    makes calls larger, not more of them, and nobody waits for others when it is quiet.

    `timeout_seconds` bounds what a request may wait: for its turn, a connection, the answer. `observe`
    gets the seconds that each answered call took. `clock` stands in for the server's clock in tests.
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
        self._script = Script(redis, scripts.hit())
        self._prefix = prefix
        self._observe = observe
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._deadlines = Deadlines(timeout_seconds)
        self._calls: set[asyncio.Task[None]] = set()
        self._awake = False

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        answer: asyncio.Future[Counted] = asyncio.get_running_loop().create_future()
        self._deadlines.watch(answer)
        self._waiting.append(_Waiting(checks, charge, answer))
        self._wake()
        return await answer

    def _wake(self) -> None:
        if not self._awake and self._waiting and len(self._calls) < MAX_CALLS:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._awake = False
        while len(self._calls) < MAX_CALLS and (together := self._next()):
            call = asyncio.create_task(self._call(together))
            self._calls.add(call)
            call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._wake()

    def _next(self) -> list[_Waiting]:
        """As many requests as one call may carry, without those that nobody waits for any more."""
        together: list[_Waiting] = []
        room = MAX_CHECKS
        while self._waiting and (len(self._waiting[0].checks) <= room or not together):
            one = self._waiting.popleft()
            if not one.answer.done():
                together.append(one)
                room -= len(one.checks)
        return together

    async def _call(self, together: Sequence[_Waiting]) -> None:
        try:
            with translated():
                answers = await self._decided(together)
        except Exception as error:  # whatever it is, nobody may be left waiting
            for one in together:
                if not one.answer.done():
                    away = isinstance(error, StoreUnavailable)
                    one.answer.set_exception(StoreUnavailable(str(error)) if away else error)
            return
        for one, counted in zip(together, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(counted)

    async def _decided(self, together: Sequence[_Waiting]) -> list[Counted]:
        keys = [self._key(check) for one in together for check in one.checks]
        arguments: list[str | int] = [self._clock() if self._clock else ""]
        for one in together:
            arguments += (int(one.charge), len(one.checks))
            for check in one.checks:
                arguments += _arguments(check)
        started = time.perf_counter()
        reply = await self._script(keys, arguments)
        self._observe(time.perf_counter() - started)
        return _counted(reply, [len(one.checks) for one in together])

    async def forget(self, checks: Sequence[Check]) -> int:
        with translated():
            return int(await self._redis.unlink(*[self._key(check) for check in checks]))

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int
    ) -> tuple[int, list[str]]:
        begin = self.key_beginning(client_id, rule, resets)
        with translated():
            # "." and "-" are no wildcards, braces neither; ids and prefix have nothing else that is special.
            following, keys = await self._redis.scan(cursor, match=f"{begin}*", count=SCAN_KEYS)
        return int(following), [_text(key).removeprefix(begin) for key in keys]

    def _key(self, check: Check) -> str:
        return self.key_beginning(check.client_id, check.rule, check.resets) + check.identifier

    def key_beginning(self, client_id: str, rule: Rule, resets: int) -> str:
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


def _counted(reply: list[int], lengths: Sequence[int]) -> list[Counted]:
    """The answers of the requests with so many checks each."""
    if len(reply) != 1 + len(lengths) + 4 * sum(lengths):
        raise StoreUnavailable(f"the script answered {len(reply)} numbers for {sum(lengths)} checks")
    now_us, at = reply[0], 1
    answers = []
    for length in lengths:
        numbers = reply[at + 1 : at + 1 + 4 * length]
        usages = [
            Usage(bool(fits), used, None if retry < 0 else retry, reset)
            for fits, used, retry, reset in zip(*(numbers[i::4] for i in range(4)), strict=True)
        ]
        answers.append(Counted(bool(reply[at]), now_us, usages))
        at += 1 + 4 * length
    return answers
