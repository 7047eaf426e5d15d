"""Waiting for answers by ticks: who waits too long is failed, and a late event loop is no dead store."""

import asyncio
import socket
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sidecar.application.ports import StoreUnavailable
from sidecar.infrastructure.redis import deadlines as deadlines_module
from sidecar.infrastructure.redis.deadlines import TICKS, Deadlines
from sidecar.infrastructure.redis.pending import Pending
from tests.parts import until

#: What a test waits for an outcome before it fails; nothing is measured by it.
PATIENCE_SECONDS = 30.0


class Loop:
    """The part of an event loop that counts ticks, moved by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.waiting.append((seconds, call))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            ((_, call),) = self.waiting
            self.waiting.clear()
            call()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """What `Deadlines` takes for the running loop; futures are made by the real one."""
    fake = Loop()
    monkeypatch.setattr(deadlines_module, "asyncio", SimpleNamespace(get_running_loop=lambda: fake))
    return fake


class Answer(Pending):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        super().__init__(self.told.append)


def late() -> Exception:
    return StoreUnavailable("not in time", "timeout")


def waiting(seconds: float) -> Deadlines:
    return Deadlines(seconds, late)


def failed(answer: Answer) -> bool:
    return answer.done and [type(outcome) for outcome in answer.told] == [StoreUnavailable]


async def test_an_answer_that_never_comes_is_failed_after_all_ticks(loop: Loop) -> None:
    """Each is a part of the time that there is; then nothing ticks any more."""
    deadlines, answer = waiting(2.0), Answer()
    deadlines.watch(answer)
    assert [seconds for seconds, _ in loop.waiting] == [2.0 / TICKS]
    loop.tick(TICKS - 1)
    assert not answer.done
    loop.tick()
    assert failed(answer)
    assert loop.waiting == []


async def test_each_has_its_own_time(loop: Loop) -> None:
    """Never more ticks than that, whenever it was begun."""
    deadlines, first, second = waiting(2.0), Answer(), Answer()
    deadlines.watch(first)
    loop.tick(5)
    deadlines.watch(second)
    assert len(loop.waiting) == 1
    loop.tick(TICKS - 5)
    assert (failed(first), second.done) == (True, False)
    loop.tick(5)
    assert failed(second)


async def test_what_was_answered_or_given_up_is_left_alone(loop: Loop) -> None:
    """And once all are, nothing ticks until the next one."""
    deadlines, answered, cancelled, third = waiting(2.0), Answer(), Answer(), Answer()
    for answer in (answered, cancelled):
        deadlines.watch(answer)
    answered.tell("yes")
    cancelled.give_up()
    loop.tick()
    assert loop.waiting == []
    assert (answered.told, cancelled.told) == (["yes"], [])
    deadlines.watch(third)
    loop.tick(TICKS)
    assert failed(third)


async def test_many_answered_ones_before_it_keep_none_waiting_longer(loop: Loop) -> None:
    """Nor does one before it that still waits keep the answered ones after it."""
    deadlines = waiting(2.0)
    answers = [Answer() for _ in range(100)]
    for answer in answers:
        deadlines.watch(answer)
    for answer in answers[1:99]:
        answer.tell("yes")
    loop.tick(TICKS)
    assert [failed(answer) for answer in answers] == [True, *[False] * 98, True]
    assert loop.waiting == []


async def test_an_answer_that_has_arrived_is_taken_however_late_the_loop_is() -> None:
    """It lies unread while the loop is held up, and needs some turns of it, each longer than all its time."""
    deadlines, answer = waiting(0.02), Answer()
    mine, theirs = socket.socketpair()
    with mine, theirs:
        mine.setblocking(False)
        deadlines.watch(answer)
        reading = asyncio.create_task(taken_slowly(mine, answer))
        await asyncio.sleep(0)
        theirs.send(b"yes")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reading
    assert answer.told == ["yes"]


async def taken_slowly(arriving: socket.socket, answer: Answer) -> None:
    """Reads the answer and hands it on five turns later."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        loop.call_soon(time.sleep, 0.03)
        await asyncio.sleep(0)
    read = await loop.sock_recv(arriving, 16)
    for _ in range(5):
        loop.call_soon(time.sleep, 0.03)
        await asyncio.sleep(0)
    answer.tell(read.decode())


async def test_on_a_late_loop_an_answer_that_never_comes_is_failed() -> None:
    """In the end it is, and says why."""
    deadlines, answer = waiting(0.02), Answer()
    deadlines.watch(answer)
    asyncio.get_running_loop().call_soon(time.sleep, 0.1)
    await until(lambda: failed(answer), "it is failed")
    assert "in time" in str(answer.told[0])


async def test_who_asks_again_as_soon_as_it_is_failed_has_all_its_time(loop: Loop) -> None:
    """There is one clock, whoever is told what by it."""
    deadlines, second = waiting(2.0), Answer()
    deadlines.watch(Pending(lambda outcome: deadlines.watch(second)))
    loop.tick(TICKS)
    assert len(loop.waiting) == 1
    loop.tick(TICKS - 1)
    assert not second.done
    loop.tick()
    assert failed(second)
