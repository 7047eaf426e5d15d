"""Answers as bytes."""

import email.utils
import time

import pytest
from multidict import CIMultiDict

from sidecar.infrastructure.http import writing
from sidecar.infrastructure.http.messages import Answer, Headers, Incoming
from sidecar.infrastructure.http.writing import answer_bytes, new_request_id


def call(method: str = "GET", *, old: bool = False, request_id: str = "") -> Incoming:
    return Incoming(method, "/", Headers(CIMultiDict()), request_id=request_id, old=old)


@pytest.fixture(autouse=True)
def at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.9)


def test_an_answer_is_written_in_one_piece() -> None:
    answer = Answer.of(429, {"Retry-After": "7", "X-A": "b"}, b"body")
    assert answer_bytes(answer, call(request_id="id"), keep_alive=True) == (
        b"HTTP/1.1 429 Too Many Requests\r\n"
        b"X-Request-ID: id\r\n"
        b"Retry-After: 7\r\n"
        b"X-A: b\r\n"
        b"Content-Length: 4\r\n"
        b"Date: Sun, 09 Sep 2001 01:46:40 GMT\r\n"
        b"Server: sidecar\r\n"
        b"\r\n"
        b"body"
    )


def test_a_head_gets_the_length_and_no_body() -> None:
    written = answer_bytes(Answer(404, "", b"four"), call("HEAD"), keep_alive=True)
    assert b"Content-Length: 4\r\n" in written
    assert written.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("old", "keep_alive", "connection"),
    [
        (False, True, None),
        (False, False, b"Connection: close\r\n"),
        (True, True, b"Connection: keep-alive\r\n"),
        (True, False, b"Connection: close\r\n"),
    ],
)
def test_what_becomes_of_the_connection_is_said_where_it_is_not_plain(
    old: bool, keep_alive: bool, connection: bytes | None
) -> None:
    """HTTP/1.1 keeps it, HTTP/1.0 does not."""
    written = answer_bytes(Answer(200), call(old=old), keep_alive=keep_alive)
    assert (connection in written) if connection else (b"Connection" not in written)


def test_a_status_of_a_rule_s_own_needs_no_name() -> None:
    assert answer_bytes(Answer(499), call(), keep_alive=True).startswith(b"HTTP/1.1 499 Error\r\n")


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nX-B: c", "a\rX-B: c", "a\r\n\r\nHTTP/1.1 200", "\r\n"])
def test_a_header_with_a_line_end_is_never_written(value: str) -> None:
    """In its name either: whoever wrote it would write headers and answers of his own."""
    for headers in ({"X-A": value}, {value: "a"}, {"X-A": "a", "X-C": value, "X-D": "d"}):
        with pytest.raises(ValueError, match="line end"):
            Answer.of(200, headers)


def test_a_header_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(ValueError, match="latin-1"):
        answer_bytes(Answer.of(200, {"X-A": "\u20ac"}), call(), keep_alive=True)


def test_the_date_is_that_of_the_second_also_where_the_clock_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for now in (1_700_000_000.0, 1_700_000_000.999, 1_700_000_001.0, 1_600_000_000.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        written = answer_bytes(Answer(200), call(), keep_alive=True)
        assert f"\r\nDate: {email.utils.formatdate(int(now), usegmt=True)}\r\n".encode() in written
    assert writing._Clock.second == 1_600_000_000


def test_request_ids_are_all_different_and_plain() -> None:
    made = {new_request_id() for _ in range(1000)}
    assert len(made) == 1000
    assert {len(one) for one in made} == {32}
    assert set("".join(made)) <= set("0123456789abcdef")
