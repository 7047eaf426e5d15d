"""Reading a request line that aiohttp's fast parser does not take, and never mistaking a body for one.

The fast one (llhttp) knows a list of methods and no raw UTF-8 in a target. HTTP/2 callers may send both, and
proxies pass them on: a 400 of ours would end a request that the application would have answered. aiohttp's
parser in Python takes both, but is slow. So it gets only what the fast one refused, and from there on the
rest of the connection: no two parsers ever disagree about where one of its requests ends.

Where a request begins is known at the start of a connection and after a request that came alone and had no
body, as the checks of proxies do. After any other the fast parser is on its own, and what it refuses is a
400, until the next request without a body.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import BadHttpMessage, BadHttpMethod, InvalidURLError
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy
from aiohttp.streams import EMPTY_PAYLOAD

Fed = tuple[Sequence[Any], bool, bytes]
#: Requests that are parsed ahead on one connection; no proxy pipelines.
MAX_QUEUE = 16
_READ_BUFFER = 2**16
_OPTIONS: dict[str, Any] = {
    # Bodies are not ours to unpack: one that is no gzip after all would end the connection.
    "auto_decompress": False,
    "max_msg_queue_size": MAX_QUEUE,
    # Envoy accepts 60 kB of headers by default and 96 kB as we configure it; aiohttp's own 8 kB would be a
    # 400 that ends the client's request.
    "max_line_size": 128 * 1024,
    "max_field_size": 128 * 1024,
    "max_headers": 512,
}
_END_OF_HEAD = b"\r\n\r\n"
#: The parsers bound each line and their number, which together would be 64 MB for each connection.
MAX_HEAD_BYTES = 256 * 1024
#: What an idle connection may hold of its last request.
_SMALL = 4096


def request_parser(protocol: BaseProtocol, loop: asyncio.AbstractEventLoop) -> "PatientParser":
    """The parser of one connection."""

    def patient() -> Any:
        return HttpRequestParserPy(protocol, loop, _READ_BUFFER, **_OPTIONS)

    return PatientParser(HttpRequestParser(protocol, loop, _READ_BUFFER, **_OPTIONS), patient)


def loses_what_follows(parsed: tuple[Any, Any], data: bytes) -> bool:
    """Whether the fast parser may drop what comes behind this request, the last one in the data.

    It does so where an upgrade is asked for that it does not know; of others it hands the rest over.
    """
    message, payload = parsed
    if not message.upgrade or message.method == "CONNECT":
        return False
    upgrade = message.headers.get("Upgrade", "")
    known = upgrade.isascii() and upgrade.lower() == "websocket"
    return not known and not (payload is EMPTY_PAYLOAD and _is_one_head(data))


def _is_one_head(data: bytes) -> bool:
    return data.endswith(_END_OF_HEAD) and data.count(_END_OF_HEAD) == 1


def _remembered(data: bytes) -> bytes | None:
    """What tells later whether it was one head; of a large one that is found out now, not to be held."""
    if len(data) <= _SMALL:
        return data
    return _END_OF_HEAD if _is_one_head(data) else None


class PatientParser:
    """Stands where aiohttp keeps the parser of a connection; `patient` makes the one that takes more."""

    def __init__(self, fast: Any, patient: Callable[[], Any]) -> None:
        self._parser = fast
        self._patient: Callable[[], Any] | None = patient
        #: The data behind which a request begins if it was one head; `None` where that is not known.
        self._before: bytes | None = _END_OF_HEAD
        #: What came behind it.
        self._begun: list[bytes] = []
        self._unread = 0
        #: What came of a head that is not yet whole.
        self._head_bytes = 0
        self._body: Any = EMPTY_PAYLOAD

    def feed_data(self, data: bytes) -> Fed:
        try:
            fed: Fed = self._parser.feed_data(data)
        except (BadHttpMethod, InvalidURLError):
            if self._patient is None or not self._knows_where_it_began():
                raise
            return self._begin_again(b"".join([*self._begun, data]), self._patient())
        if messages := fed[0]:
            self._ended_with(messages, data)
        else:
            self._goes_on(data)
        return fed

    def message_consumed(self) -> None:
        self._unread -= 1
        self._parser.message_consumed()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def _ended_with(self, messages: Sequence[Any], data: bytes) -> None:
        """With several in the data, or unread, the parser may have kept some of it for later."""
        self._body = body = messages[-1][1]
        alone = body is EMPTY_PAYLOAD and not self._unread and len(messages) == 1
        self._before = _remembered(data) if alone else None
        self._unread += len(messages)
        self._head_bytes = 0
        if self._begun:
            self._begun = []

    def _goes_on(self, data: bytes) -> None:
        # A whole head that is no request is kept back behind many others; else it is empty lines, which the
        # parser drops, and of which there may be any number.
        kept_back = self._before is None and self._unread and _END_OF_HEAD in data
        if self._before is not None:
            self._begun.append(data)
        if self._body.is_eof() and not kept_back:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                raise BadHttpMessage("the head is too long")

    def _knows_where_it_began(self) -> bool:
        """Whether what came before ended with a request without a body, so that this is another one.

        Looked at where it matters, not at each request.
        """
        return self._before is not None and _is_one_head(self._before)

    def _begin_again(self, begun: bytes, patient: Any) -> Fed:
        self._parser, self._patient, self._before, self._begun = patient, None, None, []
        fed: Fed = patient.feed_data(begun)
        return fed
