"""In the place of the sidecar: answers every check as the test says, and remembers what it was asked."""

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.envoy_process import APP_PORT, SIDECAR_PORT, application, require_free
from tests.proxies.process import PROXY_PORT, Proxy, running
from tests.raw_http import Headers, Reply, ask
from tests.tcp_server import BackendServer, serving


class Script:
    """What the next checks get, and what was asked so far."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.accepted = 0
        #: While it is clear, answers wait.
        self.answering = threading.Event()
        self.answering.set()
        self.answers(200)

    def answers(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """From now on, whatever is asked."""
        fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} Said\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
        self.answer = head.encode() + body

    def hangs_up(self) -> None:
        """From now on, instead of answering."""
        self.answer = b""


@contextmanager
def scripted() -> Iterator[Script]:
    """Listens where the recipes look for the sidecar."""
    script = Script()
    with serving(_Server(script)):
        try:
            yield script
        finally:
            script.answering.set()


@dataclass(frozen=True)
class Front:
    """A proxy in front of an application; who is asked is a script."""

    sidecar: Script
    log: Path

    def ask(self, method: str = "GET", target: str = "/x", headers: Headers = ()) -> Reply:
        return ask(PROXY_PORT, method, target, headers)


@contextmanager
def front(proxy: Proxy, directory: Path, *, fail_open: bool = True) -> Iterator[Front]:
    require_free(PROXY_PORT, SIDECAR_PORT, APP_PORT)
    with application(), scripted() as sidecar, running(proxy, directory, fail_open=fail_open) as log:
        yield Front(sidecar, log)


class _Server(BackendServer):
    def __init__(self, script: Script) -> None:
        super().__init__(SIDECAR_PORT, _Check)
        self.script = script


class _Check(socketserver.StreamRequestHandler):
    """One connection. Checks have no bodies."""

    server: _Server

    def handle(self) -> None:
        script = self.server.script
        script.accepted += 1
        head = b""
        while line := self.rfile.readline():
            head += line
            if line != b"\r\n":
                continue
            script.heads.append(head)
            head = b""
            script.answering.wait()
            if not script.answer:
                return
            self.wfile.write(script.answer)
