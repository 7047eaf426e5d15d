"""The way to one server, the server played by the test: overload, the breaker, the probe, the way back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from sidecar.application.breaker import FAILURES
from sidecar.application.ports import StoreUnavailable
from sidecar.domain.decision import Check, Counted, Usage
from sidecar.infrastructure.redis import batching
from sidecar.infrastructure.redis.batching import MAX_TURNS, MAX_WAITING, Lane, Waiting
from sidecar.infrastructure.redis.pending import Then, into
from tests.decisions import check
from tests.parts import until

#: Longer than any test takes, and so short that it passes at once.
PATIENT, HASTY = 60.0, 0.01


@dataclass
class Server:
    """Answers what it is sent, after `answering` is set, unless `problem` is raised instead."""

    problem: Exception | None = None
    probe_problem: Exception | None = None
    sent: list[int] = field(default_factory=list)
    probed: list[str] = field(default_factory=list)
    turned: list[bool] = field(default_factory=list)
    under_way: list[asyncio.Task[None]] = field(default_factory=list)
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answering.set()

    def send(
        self, slot: int | None, together: Sequence[Waiting], wanted: Callable[[], bool], then: Then
    ) -> None:
        self.sent.append(len(together))
        self.under_way.append(asyncio.create_task(self._answer(together, then)))

    async def _answer(self, together: Sequence[Waiting], then: Then) -> None:
        await self.answering.wait()
        then(self.problem or counted(together))

    async def probe(self, tag: str) -> None:
        self.probed.append(tag)
        await self.answering.wait()
        if self.probe_problem:
            raise self.probe_problem


def counted(together: Sequence[Waiting]) -> list[Counted]:
    return [Counted(True, 0, [Usage(True, 1, 0, 1)] * len(one.checks)) for one in together]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Asked again at once while it is away; at the end it is there, so that nobody asks any more."""
    monkeypatch.setattr(batching, "PROBE_SECONDS", 0.001)
    played = Server()
    yield played
    played.problem = played.probe_problem = None
    played.answering.set()
    await until(lambda: len(asyncio.all_tasks()) == 1, "nobody asks any more")


def lane(server: Server, timeout_seconds: float = PATIENT) -> Lane:
    return Lane(server.send, server.probe, timeout_seconds, server.turned.append)


async def outcome(way: Lane, *checks: Check) -> str:
    """How a request ends: `counted`, or the kind of its failure."""
    answer: asyncio.Future[Counted] = asyncio.get_running_loop().create_future()
    way.hit(None, checks or [check()], into(answer), charge=True)
    try:
        await answer
    except StoreUnavailable as error:
        return error.kind
    return "counted"


async def outcomes(way: Lane, number: int) -> set[str]:
    return set(await asyncio.gather(*(outcome(way) for _ in range(number))))


async def opened(server: Server) -> Lane:
    """A lane whose server has failed often enough, and still does."""
    way = lane(server)
    server.problem = server.probe_problem = StoreUnavailable("away", "connection")
    for _ in range(FAILURES):
        assert await outcome(way) == "connection"
    return way


async def test_more_than_may_wait_are_answered_at_once(server: Server) -> None:
    """Those that wait are counted nevertheless, once the server answers."""
    way = lane(server)
    server.answering.clear()
    under_way = 64 * MAX_TURNS
    asked = [asyncio.create_task(outcome(way)) for _ in range(under_way)]
    await until(lambda: len(server.sent) == MAX_TURNS, "all calls are under way")
    waiting = [asyncio.create_task(outcome(way)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    assert await outcomes(way, 10) == {"overload"}
    assert not any(task.done() for task in [*asked, *waiting])
    server.answering.set()
    assert set(await asyncio.gather(*asked, *waiting)) == {"counted"}
    assert server.turned == []


async def test_no_more_calls_are_under_way_than_may_be(server: Server) -> None:
    way = lane(server)
    server.answering.clear()
    asked = [asyncio.create_task(outcome(way)) for _ in range(2000)]
    await until(lambda: len(server.sent) == MAX_TURNS, "all calls are under way")
    for _ in range(100):
        await asyncio.sleep(0)
    assert server.sent == [64] * MAX_TURNS
    server.answering.set()
    await asyncio.gather(*asked)


async def test_a_slot_that_is_half_moved_holds_up_itself_only(server: Server) -> None:
    """Its calls are tried again, and what is for it waits; other slots have their turns."""
    half_moved, sent = 1, list[tuple[int | None, Callable[[], None]]]()

    def send(slot: int | None, together: Sequence[Waiting], wanted: Callable[[], bool], then: Then) -> None:
        sent.append((slot, partial(then, counted(together))))
        if slot != half_moved:
            sent[-1][1]()
        else:
            assert wanted()

    way, told = Lane(send, server.probe, PATIENT, server.turned.append), list[int]()

    async def ask(slot: int) -> None:
        way.hit(slot, [check()], lambda _: told.append(slot), charge=True)
        await asyncio.sleep(0)

    for slot in (half_moved, half_moved, half_moved, 2, half_moved, 3):
        await ask(slot)
    assert ([slot for slot, _ in sent], told) == ([half_moved, 2, 3], [2, 3])
    sent[0][1]()
    await asyncio.sleep(0)
    assert ([slot for slot, _ in sent], told) == ([half_moved, 2, 3, half_moved], [2, 3, half_moved])
    sent[-1][1]()
    assert told == [2, 3, *[half_moved] * 4]


async def test_after_a_few_failures_nobody_asks_any_more(server: Server) -> None:
    """Requests are told at once, and none is sent."""
    way = await opened(server)
    sent = len(server.sent)
    assert await outcomes(way, 50) == {"breaker"}
    assert (len(server.sent), server.turned) == (sent, [True])


async def test_the_probe_finds_out_that_the_server_is_back(server: Server) -> None:
    """No request has to try; it asks where the last client's counters are."""
    way = await opened(server)
    await until(lambda: len(server.probed) >= 3, "some probes")
    assert server.turned == [True]
    server.problem = server.probe_problem = None
    await until(lambda: server.turned == [True, False], "the breaker closes")
    assert await outcomes(way, 10) == {"counted"}
    assert set(server.probed) == {"c"}


async def test_a_probe_that_does_not_answer_in_time_has_failed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hangs is away, and asked again."""
    monkeypatch.setattr(batching, "CONNECT_SECONDS", HASTY)
    way = lane(server, HASTY)
    server.answering.clear()
    assert await outcomes(way, FAILURES) == {"timeout"}
    await until(lambda: len(server.probed) >= 3, "some probes")
    assert await outcome(way) == "breaker"
    server.answering.set()
    await until(lambda: server.turned == [True, False], "the breaker closes")


async def test_a_probe_that_fails_in_an_unknown_way_is_not_the_last(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nobody would ever ask again."""
    await opened(server)
    server.probe_problem = ValueError("what is this")
    await until(lambda: "could not be asked" in caplog.text, "it is logged")
    server.problem = server.probe_problem = None
    await until(lambda: server.turned == [True, False], "the breaker closes")


async def test_requests_that_wait_too_long_open_it_as_well(server: Server) -> None:
    """Although no call has failed yet."""
    way = lane(server, HASTY)
    server.answering.clear()
    assert await outcomes(way, FAILURES) == {"timeout"}
    assert (server.turned, len(server.sent)) == ([True], 1)


async def test_answers_that_come_late_do_not_close_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is slow is away: who asked has been answered without it."""
    way = lane(server, HASTY)
    server.answering.clear()
    server.probe_problem = StoreUnavailable("slow", "timeout")
    assert await outcomes(way, FAILURES) == {"timeout"}
    server.answering.set()
    await until(lambda: not way._turns, "the late answer has come")
    assert (server.turned, await outcome(way)) == ([True], "breaker")


async def test_one_failure_in_between_is_told_and_borne(server: Server) -> None:
    way = lane(server)
    for _ in range(3):
        server.problem = StoreUnavailable("once", "error")
        assert [await outcome(way) for _ in range(FAILURES - 1)] == ["error"] * (FAILURES - 1)
        server.problem = None
        assert await outcome(way) == "counted"
    assert server.turned == []


async def test_a_breaker_that_turns_often_has_one_probe(server: Server) -> None:
    """However often requests that were under way close it, and failures open it again."""
    way = await opened(server)
    for _ in range(20):
        way._breaker.succeeded()
        for _ in range(FAILURES):
            way._breaker.failed()
    probes = [task for task in asyncio.all_tasks() if task.get_name() == "store probe"]
    assert len(probes) == 1
    server.problem = server.probe_problem = None
    await until(lambda: server.turned[-1] is False, "the breaker closes")


async def test_an_unknown_failure_leaves_nobody_waiting(server: Server) -> None:
    """Each hears of it, and the next ones are sent."""
    way = lane(server)
    server.problem = ValueError("what is this")
    results = await asyncio.gather(*(outcome(way) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError] * 3
    server.problem = None
    assert await outcome(way) == "counted"
