"""A request that the fast parser refuses is read by the patient one, and nothing else ever is."""

from typing import Any

import pytest
from aiohttp.http_exceptions import BadHttpMessage, BadHttpMethod, InvalidURLError
from aiohttp.streams import EMPTY_PAYLOAD

from sidecar.infrastructure.http.parsing import MAX_HEAD_BYTES, PatientParser

HEAD = b"GET / HTTP/1.1\r\n\r\n"
ODD = b"ODD / HTTP/1.1\r\n\r\n"
REFUSED = BadHttpMethod("ODD")


class Body:
    """One that goes on."""

    def is_eof(self) -> bool:
        return False


WITHOUT_BODY, WITH_BODY = ("message", EMPTY_PAYLOAD), ("message", Body())


class Parser:
    """Answers each feed with the next of `answers`, or raises it."""

    def __init__(self, *answers: list[Any] | Exception) -> None:
        self._answers = list(answers)
        self.fed: list[bytes] = []

    def feed_data(self, data: bytes) -> tuple[list[Any], bool, bytes]:
        self.fed.append(data)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, False, b""

    def message_consumed(self) -> None:
        pass

    def set_upgraded(self, upgraded: bool) -> None:
        self.fed.append(b"upgraded" if upgraded else b"not upgraded")


def parser(fast: Parser, patient: Parser) -> PatientParser:
    made = iter([patient])
    return PatientParser(fast, lambda: next(made))


def test_a_first_request_that_is_refused_is_read_again_from_its_beginning() -> None:
    """In as many pieces as it came."""
    fast, patient = Parser([], [], REFUSED), Parser([WITHOUT_BODY])
    both = parser(fast, patient)
    for piece in (b"O", b"DD / HTTP", b"/1.1\r\n\r\n"):
        fed = both.feed_data(piece)
    assert fed[0] == [WITHOUT_BODY]
    assert patient.fed == [ODD]


def test_the_rest_of_the_connection_is_the_patient_ones() -> None:
    """Two parsers of one connection might disagree about where a request ends."""
    fast, patient = Parser(REFUSED), Parser([WITHOUT_BODY], [WITHOUT_BODY], REFUSED)
    both = parser(fast, patient)
    both.feed_data(ODD)
    both.message_consumed()
    both.feed_data(HEAD)
    both.set_upgraded(False)
    with pytest.raises(BadHttpMethod):
        both.feed_data(ODD)
    assert (fast.fed, patient.fed) == ([ODD], [ODD, HEAD, b"not upgraded", ODD])


def test_after_a_request_without_a_body_the_next_one_begins() -> None:
    """So it too can be read again; what came before is not."""
    fast, patient = Parser([WITHOUT_BODY], [WITHOUT_BODY], REFUSED), Parser([WITHOUT_BODY])
    both = parser(fast, patient)
    for _ in range(2):
        both.feed_data(HEAD)
        both.message_consumed()
    assert both.feed_data(ODD)[0] == [WITHOUT_BODY]
    assert patient.fed == [ODD]


def test_after_a_request_with_a_body_one_without_is_needed_to_know_where_the_next_begins() -> None:
    """Directly after the body the fast parser is on its own."""
    patient = Parser([WITHOUT_BODY])
    both = parser(Parser([WITH_BODY], [WITHOUT_BODY], REFUSED), patient)
    for data in (b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", HEAD):
        both.feed_data(data)
        both.message_consumed()
    assert both.feed_data(ODD)[0] == [WITHOUT_BODY]
    assert patient.fed == [ODD]


def test_what_is_wrong_with_anything_but_the_request_line_is_refused_for_good() -> None:
    """The patient parser is asked about methods and targets, not for a second opinion on framing."""
    patient = Parser()
    both = parser(Parser([], BadHttpMessage("both lengths")), patient)
    both.feed_data(b"GET")
    with pytest.raises(BadHttpMessage):
        both.feed_data(b" / HTTP/1.1\r\n\r\n")
    assert patient.fed == []


@pytest.mark.parametrize("refusal", [BadHttpMethod("FOO"), InvalidURLError("/\xe9")])
def test_an_unknown_method_and_an_odd_target_are_read_again(refusal: Exception) -> None:
    """The two things that the fast parser knows too few of."""
    assert parser(Parser(refusal), Parser([WITHOUT_BODY])).feed_data(ODD)[0] == [WITHOUT_BODY]


@pytest.mark.parametrize(
    ("messages", "data"),
    [
        ([WITH_BODY], HEAD),
        ([WITH_BODY], HEAD + b"GET / HTTP/1.1\r\n\r\n"),
        ([WITHOUT_BODY], HEAD + b"GET / HT"),
        ([WITHOUT_BODY], HEAD + b"\r\n\r\n"),
        ([WITHOUT_BODY], b"\n"),
        ([WITHOUT_BODY, WITHOUT_BODY], HEAD + HEAD),
        ([WITHOUT_BODY, WITHOUT_BODY], HEAD),
    ],
)
def test_what_may_be_the_middle_of_something_is_never_read_as_a_beginning(
    messages: list[Any], data: bytes
) -> None:
    """A body that looks like a request would be answered as one."""
    patient = Parser()
    both = parser(Parser(messages, REFUSED), patient)
    both.feed_data(data)
    for _ in messages:
        both.message_consumed()
    with pytest.raises(BadHttpMethod):
        both.feed_data(ODD)
    assert patient.fed == []


def test_while_requests_wait_nothing_is_known_about_what_comes() -> None:
    """The fast parser may have kept some of it."""
    patient = Parser()
    both = parser(Parser([WITHOUT_BODY], [WITHOUT_BODY], REFUSED), patient)
    both.feed_data(HEAD)
    both.feed_data(HEAD)
    with pytest.raises(BadHttpMethod):
        both.feed_data(ODD)
    assert patient.fed == []


def test_a_large_head_is_followed_by_an_odd_request_as_a_small_one_is() -> None:
    """Though it is not held until then."""
    fast, patient = Parser([WITHOUT_BODY], REFUSED), Parser([WITHOUT_BODY])
    both = parser(fast, patient)
    both.feed_data(b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000 + b"\r\n\r\n")
    both.message_consumed()
    assert both.feed_data(ODD)[0] == [WITHOUT_BODY]


def test_a_head_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    """Each of its lines may be long, and there may be many: together they may not."""
    both = parser(Parser(*[[]] * 5), Parser())
    for _ in range(4):
        both.feed_data(b"x" * (MAX_HEAD_BYTES // 4))
    with pytest.raises(BadHttpMessage):
        both.feed_data(b"x")


def test_a_body_may_be_longer_than_a_head() -> None:
    both = parser(Parser([WITH_BODY], [], [], []), Parser())
    both.feed_data(HEAD)
    for _ in range(3):
        both.feed_data(b"x" * MAX_HEAD_BYTES)


def test_empty_lines_before_a_request_are_a_head_that_never_ends() -> None:
    """The parser drops them, and would drop any number: they are not kept for ever."""
    both = parser(Parser(*[[]] * 5), Parser())
    for _ in range(4):
        both.feed_data(b"\r\n\r\n" * (MAX_HEAD_BYTES // 16))
    with pytest.raises(BadHttpMessage):
        both.feed_data(b"\r\n\r\n")


def test_whole_requests_that_wait_behind_others_are_no_long_head() -> None:
    """The parser keeps them back, as many as have come."""
    both = parser(Parser([WITHOUT_BODY, WITHOUT_BODY], []), Parser())
    both.feed_data(HEAD + HEAD)
    assert both.feed_data(HEAD * MAX_HEAD_BYTES)[0] == []
