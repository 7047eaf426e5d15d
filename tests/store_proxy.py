"""The way from one sidecar to its store, to be cut, silenced and restored while both run."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from tests.tcp_proxy import TcpProxy

#: How a published message begins on a connection that has subscribed (RESP 2).
_ANNOUNCEMENT = b"*3\r\n$7\r\nmessage\r\n"


class StoreProxy:
    """A `TcpProxy` in a thread of its own, so that tests may ask in the meantime and wait for the answer.

    With `swallow_announcements`, everything passes but what was published: subscribing works, and nothing is
    ever heard.
    """

    def __init__(self, target_port: int, *, swallow_announcements: bool = False) -> None:
        self._way = _Way(target_port, swallow_announcements)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store proxy", daemon=True)

    @property
    def url(self) -> str:
        return self._way.url

    @property
    def swallowed(self) -> int:
        """Announcements that were kept back."""
        return self._way.swallowed

    def cut(self) -> None:
        """All connections are closed, and new ones as soon as they are made."""
        self._do(self._way.go_away)

    def silence(self) -> None:
        """All connections stay, and nothing is answered on them."""
        self._do(self._way.hold_replies)

    def slow(self, seconds: float) -> None:
        """Every reply comes so much later."""
        self._do(lambda: self._way.slow_replies(seconds))

    def drop_replies(self) -> None:
        """What the store has done stays done, and its connection is closed instead of a reply."""
        self._do(self._way.drop_replies)

    def tear_replies(self) -> None:
        """The connection is reset in the middle of each reply."""
        self._do(self._way.tear_replies)

    def restore(self) -> None:
        self._do(self._way.come_back)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._way.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._way.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, action: Callable[[], None]) -> None:
        async def doing() -> None:
            action()

        self._wait(doing())

    def _wait(self, doing: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(doing, self._loop).result(30)


class _Way(TcpProxy):
    def __init__(self, target_port: int, swallow_announcements: bool) -> None:
        super().__init__(target_port)
        self._swallow = swallow_announcements
        self._away = False
        self.swallowed = 0

    def go_away(self) -> None:
        self._away = True
        self.cut()

    def come_back(self) -> None:
        self._away = False
        self.pass_replies()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away:
            writer.transport.abort()
        else:
            super()._accept(reader, writer)

    async def _replies(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if not self._swallow:
            await super()._replies(server, to_client)
            return
        while data := await server.read(65536):
            if data.startswith(_ANNOUNCEMENT):
                self.swallowed += 1
                continue
            to_client.write(data)
            await to_client.drain()
