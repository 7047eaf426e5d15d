"""Requests on their way to the store: those of one moment travel together.

Requests of one turn of the event loop share a call; while calls are under way, more gather. So a flood makes
calls larger, not more of them, and nobody waits for others when it is quiet. Each server has a lane of its
own, with a breaker: one that is away does not hold up what goes to others.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from sidecar.application.breaker import Breaker
from sidecar.application.ports import StoreUnavailable
from sidecar.application.tasks import was_cancelled
from sidecar.domain.decision import Check, Counted
from sidecar.domain.ruleset import MAX_CHECKS
from sidecar.domain.values import per_request
from sidecar.infrastructure.redis.connection import translated
from sidecar.infrastructure.redis.deadlines import Deadlines

#: Calls to one server under way at once; enough to keep it busy, few enough that a flood gathers in them.
MAX_CALLS = 4
#: Requests that may wait for one server; more are decided without it, at once.
MAX_WAITING = 4096
#: How often a server that is away is asked whether it is back.
PROBE_SECONDS = 0.2
#: For so long after it was back a server that is away again is not asked at once.
CALM_SECONDS = 1.0
CONNECT_SECONDS = 1.0
_log = logging.getLogger("sidecar.store")


@per_request()
class Waiting:
    """One request on its way."""

    checks: Sequence[Check]
    charge: bool
    answer: asyncio.Future[Counted]


#: Decides requests whose counters share a slot, in order. Raises what the store raises.
Send = Callable[[int | None, Sequence[Waiting]], Awaitable[list[Counted]]]


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
        self._deadlines = Deadlines(timeout_seconds, self._breaker.failed)
        #: By slot; the next call takes those of the first.
        self._waiting: dict[int | None, deque[Waiting]] = {}
        self._size = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._awake = False
        #: The hash tag of the last request: its counters are on this server.
        self._tag = ""
        self._probing: asyncio.Task[None] | None = None
        #: By the loop's clock.
        self._back_since = -CALM_SECONDS

    def hit(self, slot: int | None, checks: Sequence[Check], *, charge: bool) -> asyncio.Future[Counted]:
        answer: asyncio.Future[Counted] = asyncio.get_running_loop().create_future()
        if self._breaker.open:
            answer.set_exception(StoreUnavailable("the store is away", "breaker"))
            return answer
        if self._size >= MAX_WAITING:
            problem = f"{self._size} requests wait for the store already"
            answer.set_exception(StoreUnavailable(problem, "overload"))
            return answer
        self._tag = checks[0].tag
        self._deadlines.watch(answer)
        self._waiting.setdefault(slot, deque()).append(Waiting(checks, charge, answer))
        self._size += 1
        self._wake()
        return answer

    def _wake(self) -> None:
        if not self._awake and self._waiting and len(self._calls) < MAX_CALLS:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._awake = False
        while self._waiting and len(self._calls) < MAX_CALLS:
            slot, together = self._next()
            if together:
                call = asyncio.create_task(self._call(slot, together))
                self._calls.add(call)
                call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._wake()

    def _next(self) -> tuple[int | None, list[Waiting]]:
        """As many requests as one call may carry, without those that nobody waits for any more."""
        slot, queue = next(iter(self._waiting.items()))
        together: list[Waiting] = []
        room = MAX_CHECKS
        while queue and (len(queue[0].checks) <= room or not together):
            one = queue.popleft()
            self._size -= 1
            if not one.answer.done():
                together.append(one)
                room -= len(one.checks)
        del self._waiting[slot]
        if queue:  # after the others' turn
            self._waiting[slot] = queue
        return slot, together

    async def _call(self, slot: int | None, together: Sequence[Waiting]) -> None:
        started = time.perf_counter()
        try:
            with translated():
                answers = await self._send_together(slot, together)
        except Exception as error:  # whatever it is, nobody may be left waiting
            self._breaker.failed()
            for one in together:
                if not one.answer.done():
                    one.answer.set_exception(_same(error))
            return
        if any(not one.answer.done() for one in together) or self._in_time(started):
            self._breaker.succeeded()
        for one, counted in zip(together, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(counted)

    def _in_time(self, started: float) -> bool:
        return time.perf_counter() - started <= self._timeout_seconds

    def _turned(self, is_open: bool) -> None:
        self._on_breaker(is_open)
        if not is_open:
            self._back_since = asyncio.get_running_loop().time()
        # One that sleeps since the breaker was open before goes on by itself.
        if is_open and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._find_out(), name="store probe")

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
    return StoreUnavailable(str(error), error.kind) if isinstance(error, StoreUnavailable) else error
