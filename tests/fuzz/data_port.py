"""Bytes to the data port: every answer is well-formed, none is a 500, and how they were cut changes nothing.

A connection as the server makes it, without a socket: its transport keeps what was written.
"""

import asyncio
import itertools
import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.connection import Bound, Crowd
from sidecar.infrastructure.http.held import Outbox
from sidecar.infrastructure.http.protocol import DataConnection
from tests.fuzz.texts import changed, json_values, latin, spoilt, text
from tests.served_front import Served

KINDS = (
    *("none", "session_id", "ip_user_agent", "ip", "user_id", "header:x-key", "cookie:session_id"),
    *("jwt_claim:sub", ("ip", "user_id"), ("header:x-key", "cookie:a")),
)
ALGORITHMS = ("sliding_window", "sliding_window_counter", "fixed_window", "token_bucket")
STATUSES = {100, 200, 400, 403, 404, 405, 408, 413, 422, 429, 503}
_LOOP = asyncio.new_event_loop()
_HEAD = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) [ -~]+\r\n((?:[A-Za-z0-9-]+: [ -~]*\r\n)*)\r\n")
_REFUSAL = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: 104\r\n"
#: What is another each time.
_PASSING = re.compile(rb"(?im)^(x-request-id: [0-9a-f-]{32,36}|date: .*)\r\n")


def _rules() -> RuleSet:
    counted = {"limit": 3, "window_seconds": 60}
    rules = tuple(
        Rule(id=f"r{n}", route="/*", identifier_type=kind, algorithm=ALGORITHMS[n % 4], **counted)  # type: ignore[arg-type]
        for n, kind in enumerate(KINDS)
    )
    path = Rule(id="p", route="/users/{id}/b", identifier_type="path:id", **counted)  # type: ignore[arg-type]
    return RuleSet(
        [
            Client(id="c", rules=(*rules, path)),
            Client(id="h", hosts=("h.example", "*.h.example"), rules=rules[:3]),
        ],
        Policy(default_client="c"),
    )


_RULES = _rules()


class Transport(asyncio.Transport):
    """Keeps what is written, until it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        if not self.closed:
            self.written += bytes(data)

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Errors(logging.Handler):
    """An error in the log is one of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


def answered(pieces: Sequence[bytes]) -> bytes:
    return _LOOP.run_until_complete(_answered(pieces))


async def _answered(pieces: Sequence[bytes]) -> bytes:
    served, transport, errors, loose = Served(), Transport(), Errors(), []
    served.evaluator.rule_set = _RULES
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: loose.append(context))
    logging.getLogger().addHandler(errors)
    connection = DataConnection(served.front, Crowd(Bound()), Outbox(loop))
    try:
        connection.connection_made(transport)
        for piece in pieces:
            if not transport.closed:
                connection.data_received(piece)
            await _settled()
        connection.connection_lost(None)
        await _settled()
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.seen, errors.seen[0].getMessage() + str(errors.seen[0].exc_info)
    assert not loose, loose
    return transport.written


async def _settled() -> None:
    """Nothing here waits for anything outside: all is done when the loop has nothing more that is ready."""
    ready: Any = asyncio.get_running_loop()
    for _ in range(500):
        await asyncio.sleep(0)
        if not ready._ready:
            return
    raise AssertionError("it does not come to rest")


def holds(given: tuple[bytes, list[int]]) -> None:
    sent, cuts = given
    whole = answered([sent])
    well_formed(whole)
    places = sorted({0, len(sent), *(cut % (len(sent) + 1) for cut in cuts)})
    pieces = [sent[start:end] for start, end in itertools.pairwise(places)]
    in_pieces = answered(pieces)
    kept, others = sorted((_before_refusal(in_pieces), _before_refusal(whole)), key=len)
    assert others.startswith(kept), (pieces, in_pieces, whole)
    assert kept == others or _REFUSAL in whole + in_pieces, (pieces, in_pieces, whole)


def _before_refusal(answers: bytes) -> bytes:
    """Without what is another each time, and without the answer to what is no HTTP.

    The parser may see it at another byte, or wait for its end; and what came before it in the same read it
    gives up, too.
    """
    return _PASSING.sub(b"", answers).partition(_REFUSAL)[0]


def well_formed(answers: bytes) -> list[int]:
    """The statuses; every byte belongs to an answer."""
    statuses = []
    while answers:
        head = _HEAD.match(answers)
        assert head, answers
        status = int(head[1])
        assert status in STATUSES, answers
        assert len(head[0]) < 4096 + 512, "headers stay under 4 KiB"
        statuses.append(status)
        lengths = re.findall(rb"(?im)^content-length: ([0-9]+)\r$", head[2])
        assert len(lengths) == (status != 100), head[0]
        body = answers[head.end() :]
        length = int(lengths[0]) if lengths else 0
        # A HEAD says how long it would have been.
        answers = body[length:] if not body.startswith(b"HTTP/1.") else body
    return statuses


_METHODS = st.sampled_from(
    ["GET", "POST", "HEAD", "OPTIONS", "PROPFIND", "get", "M-SEARCH", "X", "CONNECT", "PRI", "é"]
)
_TARGETS = (
    *(
        "/authz/x",
        "/authz",
        "/authz/users/7/a",
        "/authz//a/../b?x=1",
        "/nginx",
        "/ingress-nginx?x",
        "/forward-auth",
    ),
    *("/clients/c/authz/x", "/clients/h/nginx", "/clients/none/authz/x", "/v1/evaluate", "/rate/check", "*"),
    *(
        "/rate/status?endpoint=e",
        "/rate/status?endpoint=%ff&endpoint=2",
        "/health",
        "/ready",
        "http://h.example/authz/x",
    ),
)
_NAMES = (
    *(
        "X-Client-IP",
        "X-Forwarded-For",
        "X-Session-ID",
        "X-User-ID",
        "X-Key",
        "X-JWT-Payload",
        "Cookie",
        "Host",
    ),
    *("X-Original-Method", "X-Original-URI", "X-Original-URL", "X-Forwarded-Method", "X-Forwarded-Uri"),
    *(
        "X-Forwarded-Host",
        "User-Agent",
        "X-Request-ID",
        "Origin",
        "Access-Control-Request-Method",
        "X-Sidecar-Secret",
    ),
    *(
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "Expect",
        "Content-Encoding",
        "Odd Name",
        "",
    ),
)
_VALUES = st.sampled_from(
    [
        "192.0.2.1",
        "7",
        "chunked",
        "close",
        "keep-alive",
        "100-continue",
        "0",
        "5",
        "-1",
        "websocket",
        "h.example",
        "GET",
    ]
) | latin(5)
_EVALUATE = {
    "client_id": "c",
    "route": "/x",
    "method": "GET",
    "identifier": {"type": "ip", "ip": "192.0.2.1", "session_id": "s", "user_id": "7", "user_agent": "u"},
    "host": "h.example",
    "headers": {"x-key": "k"},
    "cost": 1,
}


@st.composite
def one(draw: st.DrawFn) -> bytes:
    """A request, more or less."""
    target = draw(st.sampled_from(_TARGETS) | st.tuples(st.just("/authz"), latin(6)).map("".join))
    fields = draw(st.lists(st.tuples(st.sampled_from(_NAMES), _VALUES), max_size=6))
    body = draw(st.just(b"") | bodies())
    if draw(st.booleans()) and body:
        fields.append(("Content-Length", str(len(body))))
    version = draw(st.sampled_from(["HTTP/1.1"] * 9 + ["HTTP/1.0", "HTTP/2.0", "HTTP/1.1 "]))
    lines = [
        f"{draw(_METHODS)} {target} {version}",
        "Host: h",
        *(f"{name}: {value}" for name, value in fields),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def bodies() -> st.SearchStrategy[bytes]:
    described = changed(_EVALUATE).map(lambda made: json.dumps(made).encode())
    rate = st.tuples(text(4)).map(lambda made: json.dumps({"endpoint": made[0]}).encode())
    chunks = st.sampled_from(
        [
            b"0\r\n\r\n",
            b"5\r\nhello\r\n0\r\n\r\n",
            b"5;x\r\nhello\r\n0\r\nT: x\r\n\r\n",
            b"z\r\n",
            b"5\r\nhel",
        ]
    )
    smuggled = st.just(b"GET /authz/smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
    values = json_values().map(lambda made: json.dumps(made).encode())
    return described | rate | chunks | smuggled | values | st.binary(max_size=40)


def requests() -> st.SearchStrategy[tuple[bytes, list[int]]]:
    several = st.lists(one(), min_size=1, max_size=4).map(b"".join)
    broken = spoilt(["GET /authz/x HTTP/1.1\r\nHost: h\r\nX-Client-IP: 192.0.2.1\r\n\r\n" * 2])
    sent = several | broken.map(lambda made: made.encode("utf-8", "surrogatepass")) | st.binary(max_size=200)
    return st.tuples(sent, st.lists(st.integers(0, 10_000), max_size=6))
