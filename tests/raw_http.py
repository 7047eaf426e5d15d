"""HTTP written and read by hand: tests say every byte, and see every header as it came."""

import json
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

#: How long an answer may take before the test fails; nothing is measured by it.
PATIENCE_SECONDS = 30.0

Headers = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; header names in lower case, in order, as often as they came."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """For tests that look at single ones; a header that came twice is a failure."""
        names = [name for name, _ in self.fields]
        assert len(names) == len(set(names)), f"a header came twice: {self.fields}"
        return dict(self.fields)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One connection to 127.0.0.1, for as many requests as the test likes.

    From `source` if that is given, over TLS if that is.
    """

    def __init__(self, port: int, *, source: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", port), PATIENCE_SECONDS, (source, 0) if source else None
        )
        if tls is not None:
            plain = self._socket
            try:
                self._socket = tls.wrap_socket(plain, server_hostname="127.0.0.1")
            except OSError:
                plain.close()
                raise
        self._received = b""

    @property
    def local_port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        """Send one request and read its answer."""
        self.send(request(method, target, headers, body))
        return self.answer(method)

    def answer(self, method: str = "GET") -> Reply:
        """The next answer, which is one to a request of this method (a HEAD is answered without a body)."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        fields = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        status, named = int(status_line.split()[1]), dict(fields)
        if method == "HEAD" or status < 200 or status in (204, 304):
            return Reply(status, fields, b"")
        if named.get("transfer-encoding") == "chunked":
            return Reply(status, fields, b"".join(self._chunks()))
        return Reply(status, fields, self._exactly(int(named["content-length"])))

    def received(self, length: int) -> bytes:
        """So many bytes of what follows an answer, where that is no HTTP any more."""
        return self._exactly(length)

    def end(self) -> None:
        """Nothing more will be sent; answers are still read."""
        self._socket.shutdown(socket.SHUT_WR)

    def closed(self) -> bool:
        """Whether the other side closes the connection, with nothing more to read."""
        try:
            return not self._received and not self._socket.recv(1)
        except ConnectionResetError:  # it did so before it had read everything
            return True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._until(b"\r\n"), 16):
            yield self._exactly(size)
            self._exactly(2)
        self._until(b"\r\n")

    def _until(self, end: bytes) -> bytes:
        while end not in self._received:
            self._more()
        taken, _, self._received = self._received.partition(end)
        return taken + end

    def _exactly(self, length: int) -> bytes:
        while len(self._received) < length:
            self._more()
        taken, self._received = self._received[:length], self._received[length:]
        return taken

    def _more(self) -> None:
        data = self._socket.recv(65536)
        assert data, f"the connection was closed within an answer: {self._received!r}"
        self._received += data


def request(method: str, target: str, headers: Headers = (), body: bytes | None = None) -> bytes:
    """The bytes of a request. `Host` is added unless it is given, and the body's length with a body."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    if all(name.lower() != "host" for name, _ in pairs):
        pairs.insert(0, ("Host", "test.example"))
    if body is not None:
        pairs.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def ask(port: int, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
    """One request on a connection of its own."""
    with Connection(port) as connection:
        return connection.ask(method, target, headers, body)


def without_host(port: int, target: str, headers: Mapping[str, str]) -> Reply:
    """One GET of HTTP/1.0, which needs no `Host`."""
    lines = [f"GET {target} HTTP/1.0", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with Connection(port) as connection:
        connection.send("\r\n".join(lines).encode("latin-1"))
        return connection.answer()


@contextmanager
def connections(port: int, number: int) -> Iterator[list[Connection]]:
    """Several connections at once, all closed at the end."""
    opened = [Connection(port) for _ in range(number)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()
