"""Servers that stand behind a proxy: each connection has a thread, and may end without a word."""

import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class BackendServer(socketserver.ThreadingTCPServer):
    """On a port of the loopback address; of a peer that is gone it prints no traceback."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", port), handler)

    def handle_error(self, *whose: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*whose)


@contextmanager
def serving(server: BackendServer) -> Iterator[None]:
    """Answers from the first to the last moment of the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
