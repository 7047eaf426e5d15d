"""One connection: whatever comes in whatever pieces, each request has its one answer, in order.

Its transport keeps what is written, so every turn is the test's own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.infrastructure.connection import Bound, Crowd
from sidecar.infrastructure.http import held, protocol
from sidecar.infrastructure.http.held import MAX_TOGETHER, Outbox
from sidecar.infrastructure.http.messages import Answer, Incoming, Respond
from sidecar.infrastructure.http.parsing import MAX_QUEUE
from sidecar.infrastructure.http.protocol import DataConnection
from sidecar.infrastructure.http.server import read_body
from tests.raw_http import request


class Transport(asyncio.Transport):
    """Keeps what is written, until it is closed; `paused` and `closed` say what was asked of it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = self.aborted = self.paused = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Handler:
    """Answers with the target; `/later` when the test says so, `/body` with the body's length."""

    def __init__(self) -> None:
        self.serving = True
        self.later: list[Callable[[], None]] = []
        self.seen: list[str] = []

    def start(self, call: Incoming, respond: Respond) -> Coroutine[Any, Any, Answer] | None:
        self.seen.append(call.target)
        match call.target.partition("?")[0]:
            case "/later":
                self.later.append(lambda: respond(said(call.target)))
            case "/body":
                return self._body(call)
            case "/fails":
                raise RuntimeError("no")
            case "/fails-later":
                return self._fails()
            case "/split":
                respond(Answer.of(200, {"X-A": "a\r\nX-B: b"}))
            case "/twice":
                respond(said("/once"))
                respond(said("/again"))
                raise RuntimeError("no")
            case _:
                respond(said(call.target))
        return None

    async def _body(self, call: Incoming) -> Answer:
        body = await read_body(call, call.headers.get("expect", ""))
        return said("too long" if body is None else str(len(body)))

    async def _fails(self) -> Answer:
        await asyncio.sleep(0)
        raise RuntimeError("no")


def said(text: str) -> Answer:
    return Answer.of(200, {"X-Target": text.encode("utf-8", "surrogateescape").decode("latin-1")}, b"b")


class Talk:
    """A connection, what it is told, and what it says."""

    def __init__(self, outbox: Outbox | None = None) -> None:
        self.handler, self.transport = Handler(), Transport()
        self.crowd = Crowd[DataConnection](Bound())
        outbox = outbox or Outbox(asyncio.get_running_loop())
        self.connection = DataConnection(self.handler, self.crowd, outbox)
        self.connection.connection_made(self.transport)

    async def send(self, *pieces: bytes) -> None:
        """As a socket would: nothing while reading is paused or after the end."""
        for piece in pieces:
            await turns(while_=lambda: self.transport.paused)
            if self.transport.closed:
                return
            self.connection.data_received(piece)
        await turns()

    @property
    def answers(self) -> list[str]:
        """Of each answer its `X-Target`, else its status."""
        found, rest = [], self.transport.written
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            status, *lines = head.decode("latin-1").split("\r\n")
            fields = dict(line.split(": ", 1) for line in lines)
            rest = rest[int(fields.get("Content-Length", 0)) :]
            found.append(fields.get("X-Target", status.split(" ")[1]))
        return found

    @property
    def hung_up(self) -> bool:
        return self.transport.closed


async def turns(*, while_: Callable[[], bool] = lambda: False) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    for _ in range(2000):
        if not while_():
            break
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # what is answered goes at the end of a turn


@pytest.fixture
async def talk() -> Talk:
    return Talk()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


GET = request("GET", "/a")
POST = request("POST", "/a", {}, b"12345")
SWITCH = request("GET", "/switch", {"Connection": "upgrade", "Upgrade": "websocket"})


async def test_pipelined_requests_are_answered_in_order_and_parsed_a_few_at_a_time(talk: Talk) -> None:
    """While one is decided, nothing more is read than may wait."""
    await talk.send(request("GET", "/later") + b"".join(request("GET", f"/{n}") for n in range(1000)))
    assert (talk.answers, talk.transport.paused, talk.handler.seen) == ([], True, ["/later"])
    talk.handler.later.pop()()
    await turns(while_=lambda: talk.transport.paused)
    assert talk.answers == ["/later", *(f"/{n}" for n in range(1000))]
    assert not talk.hung_up


async def test_bodies_that_come_after_their_heads_leave_no_trace(talk: Talk) -> None:
    """After any number of them, requests that come together are all answered."""
    for _ in range(3 * MAX_QUEUE):
        await talk.send(POST[:-5], POST[-5:])
    await talk.send(GET + GET + GET)
    assert len(talk.answers) == 3 * MAX_QUEUE + 3


@pytest.mark.parametrize("first", [b"", request("ODD", "/odd")], ids=["fast", "patient"])
async def test_thousands_of_upgrades_at_once_are_as_many_requests(talk: Talk, first: bytes) -> None:
    """One after the other, with no more of them parsed than may wait."""
    await talk.send(*([first] if first else []), SWITCH * 3000)
    await turns(while_=lambda: talk.transport.paused)
    assert talk.answers[-3000:] == ["/switch"] * 3000
    await talk.send(GET)
    assert talk.answers[-1] == "/a"


@pytest.mark.parametrize("body", [None, b"12345"])
@pytest.mark.parametrize("upgrade", ["h2c", "foo, bar", "tcp"])
async def test_what_an_unknown_upgrade_may_have_swallowed_is_not_waited_for(
    talk: Talk, upgrade: str, body: bytes | None
) -> None:
    """The fast parser drops what came behind it, so its answer says that the connection ends."""
    switch = {"Connection": "upgrade", "Upgrade": upgrade}
    await talk.send(request("GET", "/later", switch))
    talk.handler.later.pop()()
    await talk.send(GET + request("POST", "/switch", switch, body) + GET + GET)
    await talk.send(GET)
    assert (talk.answers, talk.hung_up) == (["/later", "/a", "/switch"], True)


async def test_while_one_is_decided_upgrades_wait_like_others(talk: Talk) -> None:
    await talk.send(request("GET", "/later") + SWITCH * 1000 + GET)
    assert talk.transport.paused
    assert len(talk.connection._queue) <= MAX_QUEUE
    talk.handler.later.pop()()
    await turns(while_=lambda: talk.transport.paused)
    assert talk.answers == ["/later", *["/switch"] * 1000, "/a"]


async def test_what_the_caller_does_not_read_is_not_written(talk: Talk) -> None:
    """It is not answered further, nor read from, until it reads on."""
    talk.connection.pause_writing()
    await talk.send(GET * 1000)
    assert (talk.answers, talk.transport.paused) == ([], True)
    talk.connection.resume_writing()
    await turns(while_=lambda: talk.transport.paused)
    assert len(talk.answers) == 1000


async def test_answers_of_a_turn_go_together_and_a_few_do_not_wait_for_more(talk: Talk) -> None:
    """Of many connections; none waits for more than a few others."""
    outbox = Outbox(asyncio.get_running_loop())
    others = [Talk(outbox) for _ in range(MAX_TOGETHER + 1)]
    for other in others:
        other.connection.data_received(GET)
    assert [len(other.answers) for other in others] == [1] * MAX_TOGETHER + [0]
    await turns()
    assert [other.answers for other in others] == [["/a"]] * (MAX_TOGETHER + 1)


@pytest.mark.parametrize("end", ["hang_up", "force_close"])
async def test_an_answer_that_waits_is_sent_before_the_connection_is_closed(talk: Talk, end: str) -> None:
    talk.connection.data_received(GET)
    getattr(talk.connection, end)()
    assert (talk.answers, talk.hung_up) == (["/a"], True)


async def test_who_does_not_read_in_time_is_given_up(talk: Talk) -> None:
    """At once: there is nobody to wait for until all is written."""
    await talk.send(GET)
    talk.connection.pause_writing()
    now = asyncio.get_running_loop().time()
    assert not talk.connection.dawdles(now + held.HEAD_SECONDS - 1)
    assert talk.connection.dawdles(now + held.HEAD_SECONDS + 1)
    talk.connection.give_up()
    assert talk.transport.aborted


@pytest.mark.parametrize("begun", [[GET[:-4]], [GET + GET[:-4]], [GET, GET[:1], GET[1:-4]]])
async def test_a_head_has_its_time_and_an_idle_connection_more(talk: Talk, begun: list[bytes]) -> None:
    """Whether it begins alone or behind another request."""
    now = asyncio.get_running_loop().time()
    await talk.send(GET)
    assert not talk.connection.dawdles(now + held.KEEPALIVE_SECONDS - 1)
    await talk.send(*begun)
    assert not talk.connection.dawdles(now + held.HEAD_SECONDS - 1)
    assert talk.connection.dawdles(now + held.HEAD_SECONDS + 1)
    await talk.send(b"\r\n\r\n")
    assert not talk.connection.dawdles(now + held.KEEPALIVE_SECONDS - 1)


async def test_a_head_that_begins_while_another_request_is_decided_has_its_time_from_then(talk: Talk) -> None:
    await talk.send(request("GET", "/later"), b"GET /")
    talk.handler.later.pop()()
    now = asyncio.get_running_loop().time()
    assert not talk.connection.dawdles(now + held.HEAD_SECONDS - 1)
    assert talk.connection.dawdles(now + held.HEAD_SECONDS + 1)


async def test_what_is_no_http_is_said_after_the_answers_that_are_due(talk: Talk) -> None:
    """Once, and then the connection ends."""
    await talk.send(request("GET", "/later"), request("GET", "/two"), b"nonsense\r\n\r\n", GET)
    assert (talk.answers, talk.hung_up) == ([], False)
    talk.handler.later.pop()()
    await turns()
    assert (talk.answers, talk.hung_up) == (["/later", "/two", "400"], True)


@pytest.mark.parametrize(
    "odd",
    [
        b"FOO / HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n",
        b"FOO / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT h:99999999 HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
)
async def test_what_a_parser_trips_over_is_no_failure_of_ours(
    talk: Talk, log: pytest.LogCaptureFixture, odd: bytes
) -> None:
    """A 400, and nothing for the log."""
    await talk.send(odd)
    assert (talk.answers, talk.hung_up, log.records) == (["400"], True, [])


@pytest.mark.parametrize("method", ["POST", "FOO"])
async def test_a_body_that_turns_out_to_be_broken_is_a_400_to_who_needed_it(
    talk: Talk, log: pytest.LogCaptureFixture, method: str
) -> None:
    """At once, and nothing for the log."""
    await talk.send(request(method, "/body", {"Transfer-Encoding": "chunked"}), b"1\r\nx\r\n", b"zz\r\n")
    assert (talk.answers, talk.hung_up, log.records) == (["400"], True, [])


@pytest.mark.parametrize("method", ["POST", "FOO"])
async def test_a_body_that_turns_out_to_be_broken_ends_the_connection_after_the_answer(
    talk: Talk, log: pytest.LogCaptureFixture, method: str
) -> None:
    """Where nobody needed it."""
    await talk.send(request(method, "/later", {"Transfer-Encoding": "chunked"}), b"1\r\nx\r\n", b"zz\r\n")
    talk.handler.later.pop()()
    await turns()
    assert (talk.answers, talk.hung_up, log.records) == (["/later"], True, [])


async def test_a_body_without_end_ends_the_connection(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its answer, which does not wait for it."""
    monkeypatch.setattr(protocol, "MAX_UNWANTED", 100_000)
    await talk.send(request("POST", "/a", {"Content-Length": "1000000"}))
    assert (talk.answers, talk.hung_up) == (["/a"], False)
    await talk.send(*[b"x" * 10_000] * 9)
    assert not talk.hung_up
    await talk.send(*[b"x" * 10_000] * 3)
    assert talk.hung_up


async def test_a_last_answer_waits_for_the_body_so_that_it_is_not_lost(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not for long: a connection closed with something unread is reset."""
    await talk.send(request("POST", "/a", {"Connection": "close", "Content-Length": "5"}), b"123")
    assert (talk.answers, talk.hung_up) == (["/a"], False)
    await talk.send(b"45")
    assert talk.hung_up
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0)
    other = Talk()
    await other.send(request("POST", "/a", {"Connection": "close", "Content-Length": "5"}), b"123")
    assert (other.answers, other.hung_up) == (["/a"], True)


async def test_told_to_close_it_answers_what_is_under_way_and_no_more(talk: Talk) -> None:
    """And says so in the answer."""
    await talk.send(request("GET", "/later") + GET)
    talk.connection.close()
    gone = asyncio.ensure_future(talk.connection.gone())
    await talk.send(GET)
    assert (talk.hung_up, gone.done()) == (False, False)
    talk.handler.later.pop()()
    await turns()
    assert (talk.answers, talk.hung_up, gone.done()) == (["/later"], True, True)
    assert b"\r\nConnection: close\r\n" in talk.transport.written


async def test_told_to_close_it_still_takes_the_body_of_an_accepted_request(talk: Talk) -> None:
    await talk.send(request("POST", "/body", {"Content-Length": "5"}), b"12")
    talk.connection.close()
    await talk.send(b"345")
    assert (talk.answers, talk.hung_up) == (["5"], True)


async def test_told_to_close_while_a_body_is_thrown_away_it_ends_when_that_has_come(talk: Talk) -> None:
    await talk.send(request("POST", "/a", {"Content-Length": "5"}), b"12")
    talk.connection.close()
    assert not talk.hung_up
    await talk.send(b"345")
    assert (talk.answers, talk.hung_up) == (["/a"], True)


async def test_told_to_close_it_answers_a_request_that_has_come_before(talk: Talk) -> None:
    """One that waits for the caller to read."""
    talk.connection.pause_writing()
    await talk.send(GET)
    talk.connection.close()
    assert not talk.hung_up
    talk.connection.resume_writing()
    assert (talk.answers, talk.hung_up) == (["/a"], True)


async def test_an_idle_connection_is_closed_at_once(talk: Talk) -> None:
    """Half a head is no request yet."""
    await talk.send(GET, b"GET / HT")
    talk.connection.close()
    assert talk.hung_up
    await talk.connection.gone()


async def test_who_has_nothing_more_to_say_is_answered(talk: Talk) -> None:
    """All that is due, and then the connection ends."""
    await talk.send(request("GET", "/later") + GET)
    assert talk.connection.eof_received()
    talk.handler.later.pop()()
    await turns()
    assert (talk.answers, talk.hung_up) == (["/later", "/a"], True)
    assert talk.transport.written.count(b"Connection: close") == 1


@pytest.mark.parametrize(
    "begun", [b"", b"GET /", POST[:-1], request("POST", "/body", {"Content-Length": "2"})]
)
async def test_who_ends_before_a_request_is_whole_is_owed_nothing(talk: Talk, begun: bytes) -> None:
    await talk.send(begun)
    assert not talk.connection.eof_received()


async def test_a_caller_that_vanishes_leaves_nothing_behind(
    talk: Talk, log: pytest.LogCaptureFixture
) -> None:
    """Its decision comes too late, and is for nobody."""
    await talk.send(request("GET", "/later") + GET)
    assert talk.crowd.all() == (talk.connection,)
    talk.connection.connection_lost(ConnectionResetError())
    talk.handler.later.pop()()
    await talk.connection.gone()
    talk.connection.data_received(b"")
    assert (talk.answers, talk.crowd.all(), log.records) == ([], (), [])


@pytest.mark.parametrize("target", ["/a", "/body", "/fails-later"])
async def test_a_caller_that_vanishes_within_its_body_is_no_failure(
    talk: Talk, log: pytest.LogCaptureFixture, target: str
) -> None:
    """Whoever waited for it does not wait on."""
    await talk.send(request("POST", target, {"Content-Length": "100"}) + b"x")
    talk.connection.connection_lost(None)
    await turns()
    assert [record for record in log.records if record.name != "sidecar.http"] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("target", ["/fails", "/fails-later", "/split"])
async def test_a_failure_of_ours_is_a_500_in_the_log_and_the_end_of_the_connection(
    talk: Talk, log: pytest.LogCaptureFixture, target: str
) -> None:
    """And says nothing of what failed: a header with a line end in it never leaves."""
    await talk.send(request("GET", target) + GET)
    assert (talk.answers, talk.hung_up) == (["500"], True)
    assert b"X-B" not in talk.transport.written
    assert [record.message for record in log.records] == ["a request failed"]


@pytest.mark.parametrize("body", [None, b"12345"])
async def test_a_second_answer_to_one_request_is_none(talk: Talk, body: bytes | None) -> None:
    """Not to the next one either."""
    sent = request("POST", "/twice", {}, body)
    await talk.send(sent[: -3 if body else None], sent[-3:] if body else b"", GET)
    assert talk.answers == ["/once", "/a"]


async def test_a_tunnel_is_not_opened(talk: Talk) -> None:
    """A CONNECT is answered; for the patient parser all that follows would be its body."""
    await talk.send(b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
    assert (talk.answers, talk.hung_up) == (["h:1", "/a"], False)
    other = Talk()
    await other.send(request("ODD", "/odd"), b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", GET)
    assert (other.answers, other.hung_up) == (["/odd", "h:1"], True)


async def test_a_body_is_asked_for_by_who_needs_it(talk: Talk) -> None:
    await talk.send(request("POST", "/body", {"Expect": "100-continue", "Content-Length": "3"}))
    assert talk.answers == ["100"]
    await talk.send(b"123", GET)
    assert talk.answers == ["100", "3", "/a"]


async def test_http_1_0_is_closed_unless_it_wants_to_be_kept(talk: Talk) -> None:
    await talk.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"\r\nConnection: keep-alive\r\n" in talk.transport.written
    await talk.send(b"GET /b HTTP/1.0\r\n\r\n")
    assert (talk.answers, talk.hung_up) == (["/a", "/b"], True)
    assert talk.transport.written.count(b"\r\nConnection: close\r\n") == 1


async def test_while_stopping_every_answer_is_a_last_one(talk: Talk) -> None:
    talk.handler.serving = False
    await talk.send(GET)
    assert (talk.answers, talk.hung_up) == (["/a"], True)
    assert b"\r\nConnection: close\r\n" in talk.transport.written


# However it is cut.

_BODIES = st.sampled_from([None, b"", b"x", b"GET /no HTTP/1.1\r\nHost: h\r\n\r\n", b"y" * 200_000])


def _chunked(method: str, target: str, body: bytes) -> bytes:
    parts = (body[at : at + 70_000] for at in range(0, len(body), 70_000))
    chunks = b"".join(b"%x;e=1\r\n%b\r\n" % (len(part), part) for part in parts)
    return request(method, target, {"Transfer-Encoding": "chunked"}) + chunks + b"0\r\nT: x\r\n\r\n"


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[bytes, str]]:
    """Valid ones, each with what it is answered."""
    found = []
    for number in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(["plain", "plain", "body", "switch", "chunked", "needs"]))
        method, body = draw(st.sampled_from(["GET", "POST", "PUT"])), draw(_BODIES)
        target = f"/{number}"
        if kind == "needs":
            found.append((request("POST", f"/body?{number}", {}, body or b""), str(len(body or b""))))
        elif kind == "switch":
            found.append((request(method, target, {"Connection": "Upgrade", "Upgrade": "websocket"}), target))
        elif kind == "chunked":
            found.append((_chunked(method, target, body or b""), target))
        else:
            found.append((request(method, target, {}, body if kind == "body" else None), target))
    return found


@settings(deadline=None, max_examples=150)
@given(asked=requests(), patient=st.booleans(), places=st.lists(st.integers(0, 2**24), max_size=40))
def test_how_requests_are_cut_changes_no_answer(
    asked: list[tuple[bytes, str]], patient: bool, places: list[int]
) -> None:
    """On both parsers: in one piece, one by one, or cut anywhere."""
    odd = request("ODD", "/odd") if patient else b""
    whole = b"".join(sent for sent, _ in asked)
    cuts = sorted(place % len(whole) for place in places)
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
    expected = (["/odd"] if patient else []) + [answer for _, answer in asked]
    for sent in ([whole], [one for one, _ in asked], pieces):
        assert asyncio.run(_answers([odd, *sent] if odd else sent, len(expected))) == expected


async def _answers(pieces: list[bytes], number: int) -> list[str]:
    talk = Talk()
    await talk.send(*pieces)
    await turns(while_=lambda: talk.transport.paused or len(talk.answers) < number)
    assert not talk.hung_up
    return talk.answers
