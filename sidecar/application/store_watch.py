"""Looks after the store while the sidecar serves: is it there, and has somebody changed the rules.

Announcements make a change take effect at once; asking for the version every second makes it take effect even
if every announcement is lost, after a cut connection and after a restart of the store.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from sidecar.application.clients import ClientDirectory
from sidecar.application.ports import ControlStore, StoreUnavailable
from sidecar.application.readiness import Readiness

#: So often that a change is in force everywhere within a second, even if nobody hears of it.
INTERVAL_SECONDS = 0.8
_log = logging.getLogger("sidecar.store")


class StoreWatch:
    """Keeps `Readiness` and the directory true.

    `on_look` is told after each look whether the store is reachable.
    """

    def __init__(
        self,
        store: ControlStore,
        directory: ClientDirectory,
        readiness: Readiness,
        on_look: Callable[[bool], None] = lambda reachable: None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._readiness = readiness
        self._on_look = on_look
        self._announced = asyncio.Event()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        listening = asyncio.create_task(self._listen(), name="announcements")
        this = asyncio.current_task()
        try:
            # A look may swallow the cancellation, but not that it was asked for.
            while this is None or not this.cancelling():
                self._announced.clear()
                await self.look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL_SECONDS):
                        await self._announced.wait()
        finally:
            await _end(listening)

    async def look(self) -> None:
        """One look; says so in the log when the store has come or gone."""
        try:
            await self._directory.refresh()
        except StoreUnavailable as error:
            self._found(reachable=False, error=str(error))
        except Exception:
            _log.exception("what the store holds could not be taken over")
        else:
            self._found(reachable=True)

    async def _listen(self) -> None:
        while True:
            try:
                async for _ in self._store.announcements():
                    self._announced.set()
            except StoreUnavailable:
                await asyncio.sleep(INTERVAL_SECONDS)

    def _found(self, *, reachable: bool, **details: str) -> None:
        if self._readiness.store_reachable is not reachable:
            self._readiness.store_reachable = reachable
            if reachable:
                _log.info("the store is reachable")
            else:
                _log.warning("the store is away", extra=details)
        self._on_look(reachable)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel it until it has ended: what waits with a timeout may swallow a cancellation (bpo-37658)."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
