"""Answers as bytes, each in one piece."""

import itertools
import secrets
import time
from email.utils import formatdate
from http import HTTPStatus

from sidecar.infrastructure.http.messages import Answer, Incoming

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count(1)


def new_request_id() -> str:
    """Of this process and the next number: as good in logs as a random one, and cheaper."""
    return f"{_PROCESS}{next(_numbers):016x}"


def answer_bytes(answer: Answer, call: Incoming, *, keep_alive: bool) -> bytes:
    """Status line, headers and body; to a HEAD no body, but its length.

    Raises `ValueError` where a header is none: what stands behind a line end in it would be another one.
    """
    status, body = answer.status, answer.body
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Error')}"]
    if call.request_id:
        lines.append(f"X-Request-ID: {call.request_id}")
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines.append(f"Content-Length: {len(body)}\r\nDate: {_date()}\r\nServer: sidecar")
    if not keep_alive:
        lines.append("Connection: close")
    elif call.old:
        lines.append("Connection: keep-alive")
    text = "\r\n".join(lines)
    ends = len(lines) + 1  # what is always there is three lines
    if text.count("\n") != ends or text.count("\r") != ends:
        raise ValueError("a line end in a header")
    head = text.encode("latin-1") + b"\r\n\r\n"
    return head if call.method == "HEAD" else head + body


class _Clock:
    """The date of a second is written once."""

    second = 0
    text = ""


def _date() -> str:
    now = int(time.time())
    if now != _Clock.second:
        _Clock.second, _Clock.text = now, formatdate(now, usegmt=True)
    return _Clock.text
