"""Requests to a store all the time, while its servers come, go and change places."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.decision import Check
from sidecar.infrastructure.redis.counters import RedisCounterStore
from tests.parts import until

#: What an answer may take before a test fails, whatever is the matter with the store.
PATIENCE_SECONDS = 30.0


class Asking:
    """Asks for each of the clients until it is left, several at a time; counts what became of it."""

    def __init__(
        self, store: RedisCounterStore, checks: Sequence[Check], clients: Sequence[str], *, at_once: int = 2
    ) -> None:
        self._store = store
        self._of = {client: [replace(one, client_id=client) for one in checks] for client in clients}
        self._at_once = at_once
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.admitted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        #: Not decided by the store, and why.
        self.undecided: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def decided(self, client: str) -> int:
        return self.admitted[client] + self.refused[client]

    async def more(self, number: int, *clients: str) -> None:
        """Waits for so many more decisions of the store for each of them, or of all clients."""
        wanted = {client: self.decided(client) + number for client in clients or self._of}
        await until(
            lambda: all(self.decided(client) >= least for client, least in wanted.items()),
            f"{wanted} decisions of the store, {self.reasons}",
            seconds=PATIENCE_SECONDS,
        )

    async def used(self, client: str) -> int:
        """What is charged in the store, by the rule that most is charged to."""
        answer = await self._store.hit(self._of[client], charge=False)
        return max(usage.used for usage in answer.usages)

    async def __aenter__(self) -> Self:
        for client in self._of:
            self._tasks += [asyncio.create_task(self._keep_asking(client)) for _ in range(self._at_once)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _keep_asking(self, client: str) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS + 10):
                    answer = await self._store.hit(self._of[client])
            except StoreUnavailable as error:
                self.undecided[client] += 1
                self.reasons[error.kind] += 1
                # Who is answered at once is not to keep all others from their turn.
                await asyncio.sleep(0.001)
            else:
                (self.admitted if answer.admitted else self.refused)[client] += 1
