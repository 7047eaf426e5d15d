"""The way to the store for those who look and search: never that of decisions, and one search at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sidecar.application.ports import CounterStore
from sidecar.domain.rule import Rule

#: How long a search waits for those before it; callers of an admin API do not wait much longer for anything.
WAIT_SECONDS = 10.0


class TooManySearches(Exception):
    """Others were searching all the time."""


class Searches:
    """Takes turns at a store on connections of its own, so that no decision waits behind a search."""

    def __init__(self, counters: CounterStore) -> None:
        self.counters = counters
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Raises `TooManySearches`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._turn.acquire()
        except TimeoutError as error:
            raise TooManySearches("other searches are under way; try again") from error
        try:
            yield
        finally:
            self._turn.release()

    async def pages(
        self, client_id: str, rule: Rule, resets: int, *, spread: bool = False
    ) -> AsyncIterator[tuple[list[str], bool]]:
        """The identifiers of a rule step by step, and whether that was the last one; a turn has to be held.

        An identifier may come twice. What else is in the store makes steps that find nothing.
        """
        cursor = 0
        while True:
            cursor, found = await self.counters.identifiers(client_id, rule, resets, cursor, spread=spread)
            yield found, cursor == 0
            if cursor == 0:
                return
            # Answers of a near store can all be there at once; what else the process does comes first.
            await asyncio.sleep(0)
