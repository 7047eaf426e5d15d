"""Answers as bytes, each in one piece."""

import itertools
import secrets
import time
from email.utils import formatdate
from http import HTTPStatus

from sidecar.infrastructure.http.messages import Answer, Incoming

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count(1)


def new_request_id() -> str:
    """Of this process and the next number: as good in logs as a random one, and cheaper."""
    return f"{_PROCESS}{next(_numbers):016x}"


def answer_bytes(answer: Answer, call: Incoming, *, keep_alive: bool) -> bytes:
    """Status line, headers and body; to a HEAD no body, but its length.

    The id and the lines are written as they are: whoever took them from outside has looked at them.
    """
    status, body = answer.status, answer.body
    started = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} Error"
    request_id = f"X-Request-ID: {call.request_id}\r\n" if call.request_id else ""
    connection = ""
    if not keep_alive:
        connection = "Connection: close\r\n"
    elif call.old:
        connection = "Connection: keep-alive\r\n"
    head = (
        f"{started}\r\n{request_id}{answer.lines}Content-Length: {len(body)}\r\n{_date_and_server()}"
        f"{connection}\r\n"
    ).encode("latin-1")
    return head if call.method == "HEAD" else head + body


class _Clock:
    """The date of a second is written once."""

    second = 0
    lines = ""


def _date_and_server() -> str:
    now = int(time.time())
    if now != _Clock.second:
        _Clock.second = now
        _Clock.lines = f"Date: {formatdate(now, usegmt=True)}\r\nServer: sidecar\r\n"
    return _Clock.lines
