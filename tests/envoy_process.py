"""A real Envoy with the repository's own configuration, and an application behind it that hides nothing."""

import hashlib
import socket
import socketserver
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.assets import asset
from tests.sidecar_process import PATIENCE_SECONDS
from tests.tcp_server import BackendServer, serving

#: As envoy.yaml has them.
ENVOY_PORT, SIDECAR_PORT, APP_PORT = 10000, 8000, 8080


@contextmanager
def envoy(binary: Path, directory: Path) -> Iterator[None]:
    """Envoy in front of `SIDECAR_PORT` and `APP_PORT`, from the moment it listens."""
    log_file = directory / "envoy.log"
    options = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn")
    with log_file.open("wb") as log:
        process = subprocess.Popen([binary, "-c", asset("envoy.yaml"), *options], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not listens(ENVOY_PORT):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Envoy does not start:\n{log_file.read_text()}")
            time.sleep(0.01)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def application() -> Iterator[list[bytes]]:
    """Answers every request 200, with the head that it got as the body and the length of the body it got.

    Some targets are answered as `_OWN` says, and WebSockets echo. Yields the targets that it was asked for.
    """
    server = _Server()
    with serving(server):
        yield server.asked


def require_free(*ports: int) -> None:
    """Fails, saying which, if somebody listens on one of the ports that envoy.yaml has."""
    if taken := [port for port in ports if listens(port)]:
        pytest.fail(f"the tests of envoy.yaml need its ports, and somebody else listens on {taken}")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Server(BackendServer):
    def __init__(self) -> None:
        super().__init__(APP_PORT, _Application)
        self.asked: list[bytes] = []


class _Application(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while head := self._head():
            method, target, _ = head.split(b" ", 2)
            self.server.asked.append(target)
            fields = _fields(head)
            if key := fields.get(b"sec-websocket-key"):
                self._echo_frames(key)
                return
            received = len(self.rfile.read(int(fields.get(b"content-length", 0))))
            body = b"" if method == b"HEAD" else head
            status, own = _OWN.get(target.partition(b"?")[0], (b"200 OK", b""))
            lines = b"X-App: yes\r\nX-App-Received: %d\r\n%bContent-Length: %d" % (received, own, len(body))
            self.wfile.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n" % (status, lines) + body)

    def _head(self) -> bytes:
        lines = []
        while line := self.rfile.readline():
            lines.append(line)
            if line == b"\r\n":
                return b"".join(lines)
        return b""

    def _echo_frames(self, key: bytes) -> None:
        """RFC 6455: short masked frames come, and go back unmasked, until the other side has enough."""
        accept = b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        lines = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n" % accept
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\n" + lines)
        while True:
            start = self._exactly(2)
            length = start[1] & 0x7F
            mask = self._exactly(4)
            payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self._exactly(length)))
            self.wfile.write(bytes([start[0], length]) + payload)

    def _exactly(self, number: int) -> bytes:
        if len(read := self.rfile.read(number)) < number:
            raise ConnectionAbortedError
        return read


#: Answers that are not 200, or have headers of their own.
_OWN = {
    b"/own-limits": (b"200 OK", b"X-RateLimit-Limit: 77\r\n"),
    b"/own-401": (b"401 Unauthorized", b'WWW-Authenticate: Basic realm="app"\r\n'),
    b"/own-403": (b"403 Forbidden", b""),
    b"/own-503": (b"503 Service Unavailable", b""),
    b"/redirects": (b"302 Found", b"Location: http://test.example/redirected\r\n"),
}


def _fields(head: bytes) -> dict[bytes, bytes]:
    lines = head.rstrip().split(b"\r\n")[1:]
    pairs = (line.partition(b":") for line in lines)
    return {name.lower(): value.strip() for name, _, value in pairs}
