"""Looks after the store while the sidecar serves: is it there, and has somebody changed the rules.

Announcements make a change take effect at once; asking for the version every second makes it take effect even
if every announcement is lost, after a cut connection and after a restart of the store.
"""

import asyncio
import contextlib
import logging
import uuid
from typing import Protocol

from sidecar.application.clients import ClientDirectory
from sidecar.application.ports import NO_EVICTION, ControlStore, StoreUnavailable
from sidecar.application.readiness import Readiness
from sidecar.application.tasks import end, was_cancelled

#: So often that a change is in force everywhere within a second, even if nobody hears of it.
INTERVAL_SECONDS = 0.8
#: After so many looks (a minute) it is looked whether the store evicts.
EVICTION_LOOKS = 75
_log = logging.getLogger("sidecar.store")


class StoreNews(Protocol):
    """Hears after each look what was found; must not raise or block."""

    def store_reachable(self, reachable: bool) -> None: ...

    def store_evicts(self, evicts: bool) -> None:
        """Whether it may forget counters when its memory is full."""

    def live_processes(self, number: int) -> None:
        """Not told while the store is away: the last number holds."""


class StoreWatch:
    """Keeps `Readiness` and the directory true."""

    def __init__(
        self, store: ControlStore, directory: ClientDirectory, readiness: Readiness, news: StoreNews
    ) -> None:
        self._store = store
        self._directory = directory
        self._readiness = readiness
        self._news = news
        self._looks = 0
        self._process = uuid.uuid4().hex
        self._announced = asyncio.Event()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        listening = asyncio.create_task(self._listen(), name="announcements")
        try:
            while not was_cancelled():
                self._announced.clear()
                await self.look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL_SECONDS):
                        await self._announced.wait()
        finally:
            await end(listening)

    async def look(self) -> None:
        """One look; says so in the log when the store has come or gone."""
        try:
            await self._directory.refresh()
            self._news.live_processes(await self._store.live_processes(self._process))
            await self._look_for_eviction()
        except StoreUnavailable as error:
            self._found(reachable=False, error=str(error))
        except Exception:
            _log.exception("what the store holds could not be taken over")
        else:
            self._found(reachable=True)

    async def _look_for_eviction(self) -> None:
        """Not at each look: servers are set up once, and changed seldom."""
        self._looks += 1
        if self._looks % EVICTION_LOOKS != 1 and self._readiness.store_reachable:
            return
        policy = await self._store.eviction_policy()
        evicts_by = "" if policy == NO_EVICTION else policy
        if evicts_by and not self._readiness.evicts_by:
            _log.warning("the store may evict counters", extra={"maxmemory_policy": policy})
        self._readiness.evicts_by = evicts_by
        self._news.store_evicts(bool(evicts_by))

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
        self._news.store_reachable(reachable)
