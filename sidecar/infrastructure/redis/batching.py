"""Requests on their way to the store: those of one moment travel together.

Requests of one turn of the event loop share a call; while calls are under way, more gather. So a flood makes
calls larger, not more of them, and nobody waits for others when it is quiet. Each server has a lane of its
own, with a breaker: one that is away does not hold up what goes to others. Nor does a slot that is half moved
hold up the others of its server.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from redis.exceptions import RedisError

from sidecar.application.breaker import Breaker
from sidecar.application.ports import StoreUnavailable
from sidecar.application.tasks import end, was_cancelled
from sidecar.domain.decision import Check, Counted
from sidecar.domain.ruleset import MAX_CHECKS
from sidecar.infrastructure.redis.connection import unavailable
from sidecar.infrastructure.redis.deadlines import Deadlines
from sidecar.infrastructure.redis.pending import Pending, Then

#: Turns of which calls are under way at once; enough to keep a server busy, few enough that a flood gathers.
MAX_TURNS = 2
#: Requests that may wait for one server; more are decided without it, at once.
MAX_WAITING = 4096
#: How often a server that is away is asked whether it is back.
PROBE_SECONDS = 0.2
#: For so long after it was back a server that is away again is not asked at once.
CALM_SECONDS = 1.0
CONNECT_SECONDS = 1.0
_log = logging.getLogger("sidecar.store")


class Waiting(Pending):
    """One request on its way, to be told a `Counted` or the exception that there is instead."""

    __slots__ = ("charge", "checks")

    def __init__(self, checks: Sequence[Check], then: Then, *, charge: bool) -> None:
        Pending.__init__(self, then)
        self.checks = checks
        self.charge = charge


#: Decides requests whose counters share a slot, in order; tells a list of `Counted`, or an exception. Asks
#: before it tries once more whether it is to.
Send = Callable[[int | None, Sequence[Waiting], Callable[[], bool], Then], None]


@dataclass(slots=True, eq=False)
class _Call:
    """Requests of a slot that are under way together."""

    slot: int | None
    together: Sequence[Waiting]
    turn: int
    started: float
    #: Whether it is tried again and again, and its turn goes on without it.
    held: bool = False

    def is_waited_for(self) -> bool:
        return not all(one.done for one in self.together)


class Lane:
    """The way to one server; `probe` asks it, counting nothing that matters."""

    def __init__(
        self,
        send: Send,
        probe: Callable[[str], Awaitable[object]],
        timeout_seconds: float,
        on_breaker: Callable[[bool], None],
    ) -> None:
        self._send_together = send
        self._probe = probe
        self._timeout_seconds = timeout_seconds
        self._breaker = Breaker(self._turned)
        self._on_breaker = on_breaker
        self._deadlines = Deadlines(timeout_seconds, _too_late, self._breaker.failed)
        self._waiting: dict[int | None, deque[Waiting]] = {}
        self._size = 0
        #: How many calls of each turn have no answer yet.
        self._turns: dict[int, int] = {}
        self._turn = 0
        #: How many calls are tried again, by slot; what else is for these waits for them.
        self._held = Counter[int | None]()
        self._awake = False
        #: Of the last request: its counter is on this server.
        self._last: Check | None = None
        self._probing: asyncio.Task[None] | None = None
        #: By the loop's clock.
        self._back_since = -CALM_SECONDS

    async def aclose(self) -> None:
        """Asks no more whether the server is back."""
        if self._probing is not None:
            await end(self._probing)

    def hit(self, slot: int | None, checks: Sequence[Check], then: Then, *, charge: bool) -> Waiting:
        waiting = Waiting(checks, then, charge=charge)
        if self._breaker.open:
            waiting.tell(StoreUnavailable("the store is away", "breaker"))
            return waiting
        if self._size >= MAX_WAITING:
            waiting.tell(StoreUnavailable(f"{self._size} requests wait for the store already", "overload"))
            return waiting
        self._last = checks[0]
        self._deadlines.watch(waiting)
        if (queue := self._waiting.get(slot)) is None:
            queue = self._waiting[slot] = deque()
        queue.append(waiting)
        self._size += 1
        if not self._awake:
            self._wake()
        return waiting

    def _wake(self) -> None:
        if not self._awake and self._waiting and len(self._turns) < MAX_TURNS:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """A call for each slot; what waits behind those is the next turn's."""
        self._awake = False
        while len(self._turns) < MAX_TURNS and (
            slots := [one for one in self._waiting if one not in self._held]
        ):
            self._turn += 1
            batches = [(slot, together) for slot in slots if (together := self._next(slot))]
            if batches:
                self._turns[self._turn] = len(batches)
            for slot, together in batches:
                self._call(_Call(slot, together, self._turn, time.perf_counter()))

    def _next(self, slot: int | None) -> list[Waiting]:
        """As many requests as one call may carry, without those that nobody waits for any more."""
        queue = self._waiting[slot]
        together: list[Waiting] = []
        room = MAX_CHECKS
        while queue and (len(queue[0].checks) <= room or not together):
            one = queue.popleft()
            self._size -= 1
            if not one.done:
                together.append(one)
                room -= len(one.checks)
        if not queue:
            del self._waiting[slot]
        return together

    def _call(self, call: _Call) -> None:
        then = partial(self._answered, call)
        try:
            self._send_together(call.slot, call.together, partial(self._again, call), then)
        except Exception as error:
            then(error)

    def _again(self, call: _Call) -> bool:
        """Whether it is to be tried once more; that takes a while, in which other slots have their turns."""
        if not call.held:
            call.held = True
            self._held[call.slot] += 1
            self._ended(call.turn)
        return call.is_waited_for()

    def _answered(self, call: _Call, outcome: Sequence[Counted] | Exception) -> None:
        if call.held:
            self._released(call.slot)
        else:
            self._ended(call.turn)
        if isinstance(outcome, Exception):  # whatever it is, nobody may be left waiting
            self._breaker.failed()
            for one in call.together:
                one.tell(_same(outcome))
            return
        if self._in_time(call.started) or call.is_waited_for():
            self._breaker.succeeded()
        for one, counted in zip(call.together, outcome, strict=True):
            one.tell(counted)

    def _ended(self, turn: int) -> None:
        self._turns[turn] -= 1
        if not self._turns[turn]:
            del self._turns[turn]
            self._wake()

    def _released(self, slot: int | None) -> None:
        self._held[slot] -= 1
        if not self._held[slot]:
            del self._held[slot]
            self._wake()

    def _in_time(self, started: float) -> bool:
        return time.perf_counter() - started <= self._timeout_seconds

    def _turned(self, is_open: bool) -> None:
        self._on_breaker(is_open)
        if not is_open:
            self._back_since = asyncio.get_running_loop().time()
        # One that sleeps since the breaker was open before goes on by itself.
        if is_open and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._find_out(), name="store probe")

    @property
    def _tag(self) -> str:
        return self._last.tag if self._last else ""

    async def _find_out(self) -> None:
        """Asks until it answers in time; nobody's request does meanwhile.

        One that was back only just is given a moment: it answers some in time and others not, and would come
        and go with every probe.
        """
        if asyncio.get_running_loop().time() - self._back_since < CALM_SECONDS:
            await asyncio.sleep(PROBE_SECONDS)
        while self._breaker.open and not was_cancelled():
            try:
                # Making a connection may take longer than an answer may.
                async with asyncio.timeout(max(CONNECT_SECONDS, self._timeout_seconds)):
                    await self._probe(self._tag)
                async with asyncio.timeout(self._timeout_seconds):
                    await self._probe(self._tag)
            except (StoreUnavailable, TimeoutError):
                await asyncio.sleep(PROBE_SECONDS)
            except Exception:
                _log.exception("the store could not be asked whether it is back")
                await asyncio.sleep(PROBE_SECONDS)
            else:
                self._breaker.succeeded()


def _same(error: Exception) -> Exception:
    """One of its own for each who waits: a traceback grows with each raise."""
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(str(error), error.kind)
    return unavailable(error) if isinstance(error, RedisError | OSError) else error


def _too_late() -> Exception:
    return StoreUnavailable("the store did not answer in time", "timeout")
