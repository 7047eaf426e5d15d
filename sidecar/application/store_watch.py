"""Looks after the store while the sidecar serves: is it there, and which clients does it hold."""

import asyncio
import logging
from collections.abc import Callable

from sidecar.application.clients import ClientDirectory
from sidecar.application.ports import CounterStore, StoreUnavailable
from sidecar.application.readiness import Readiness

#: So often that the store's return is noticed within two seconds.
INTERVAL_SECONDS = 1.0
_log = logging.getLogger("sidecar.store")


class StoreWatch:
    """Keeps `Readiness` true, and loads the clients that the store holds as soon as it can be asked.

    `on_look` is told after each look whether the store is reachable.
    """

    def __init__(
        self,
        counters: CounterStore,
        directory: ClientDirectory,
        readiness: Readiness,
        on_look: Callable[[bool], None] = lambda reachable: None,
    ) -> None:
        self._counters = counters
        self._directory = directory
        self._readiness = readiness
        self._on_look = on_look
        self._loaded = False

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def look(self) -> None:
        """One look; says so in the log when the store has come or gone."""
        try:
            await self._ask()
        except StoreUnavailable as error:
            self._found(reachable=False, error=str(error))
        else:
            self._found(reachable=True)

    async def _ask(self) -> None:
        await self._counters.ping()
        if not self._loaded:
            await self._directory.load()
            self._loaded = True

    def _found(self, *, reachable: bool, **details: str) -> None:
        if self._readiness.store_reachable is not reachable:
            self._readiness.store_reachable = reachable
            if reachable:
                _log.info("the store is reachable")
            else:
                _log.warning("the store is away", extra=details)
        self._on_look(reachable)
