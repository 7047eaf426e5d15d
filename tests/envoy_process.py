"""A real Envoy with the repository's own configuration, and an application behind it that hides nothing."""

import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.assets import asset
from tests.sidecar_process import PATIENCE_SECONDS

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
def application() -> Iterator[None]:
    """Answers every request 200, with the head that it got as the body.

    At `/own-limits` with an X-RateLimit-Limit of its own, too.
    """
    with _Server(("127.0.0.1", APP_PORT), _Application) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def require_free(*ports: int) -> None:
    """Fails, saying which, if somebody listens on one of the ports that envoy.yaml has."""
    if taken := [port for port in ports if listens(port)]:
        pytest.fail(f"the tests of envoy.yaml need its ports, and somebody else listens on {taken}")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class _Application(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while head := self._head():
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            self.rfile.read(int(lengths[0].partition(b":")[2]) if lengths else 0)
            body = b"" if head.startswith(b"HEAD ") else head
            own = b"X-RateLimit-Limit: 77\r\n" if b" /own-limits " in head else b""
            fields = b"X-App: yes\r\n%bContent-Length: %d\r\n\r\n" % (own, len(body))
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + fields + body)

    def _head(self) -> bytes:
        lines = []
        while line := self.rfile.readline():
            lines.append(line)
            if line == b"\r\n":
                return b"".join(lines)
        return b""
