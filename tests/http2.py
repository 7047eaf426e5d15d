"""As much of HTTP/2 as it takes to send one request and see its status (RFC 9113, RFC 7541)."""

import socket
from collections.abc import Sequence

from tests.raw_http import PATIENCE_SECONDS

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 1, 3, 4, 7
_END_OF_STREAM_AND_HEADERS = 0x5
# The static table's entries for a whole `:status`, which comes first; another one is a KeyError.
_STATUS = {0x88: 200, 0x89: 204, 0x8C: 400, 0x8D: 404, 0x8E: 500}


def status_of(port: int, fields: Sequence[tuple[str, bytes]]) -> int:
    """Send a request without a body, its pseudo-headers first; the status of its answer, 0 if it is reset."""
    block = b"".join(b"\x00%b%b" % (_string(name.encode()), _string(value)) for name, value in fields)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        connection.sendall(_frame(_HEADERS, _END_OF_STREAM_AND_HEADERS, 1, block))
        with connection.makefile("rb") as stream:
            while True:
                head = stream.read(9)
                payload = stream.read(int.from_bytes(head[:3]))
                if head[3] == _HEADERS:
                    return _STATUS[payload[0]]
                if head[3] in (_RST_STREAM, _GOAWAY):
                    return 0


def _string(text: bytes) -> bytes:
    """A literal of up to 126 bytes, not compressed."""
    assert len(text) < 127
    return bytes([len(text)]) + text


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload
