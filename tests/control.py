"""A `ControlStore` in memory, for tests of what is built on one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from sidecar.application.ports import AuditEntry, ControlState, StoredClient, StoreUnavailable
from sidecar.domain.rule import Enforcement


@dataclass
class MemoryControl:
    """Keeps what it is told; while `away`, every call fails.

    `before_change` is called once, before the next change: there another replica may be quicker.
    """

    state: ControlState = field(default_factory=lambda: ControlState(version="0"))
    entries: list[AuditEntry] = field(default_factory=list)
    away: bool = False
    loads: int = 0
    listened: int = 0
    policy: str = "noeviction"
    processes: set[str] = field(default_factory=set)
    announced: asyncio.Event = field(default_factory=asyncio.Event)
    before_change: Callable[[], None] | None = None
    _versions: int = 0

    async def version(self) -> str:
        self._ask()
        return self.state.version

    async def eviction_policy(self) -> str:
        self._ask()
        return self.policy

    async def live_processes(self, process: str) -> int:
        self._ask()
        self.processes.add(process)
        return len(self.processes)

    async def load(self) -> ControlState:
        self._ask()
        self.loads += 1
        return self.state

    async def replace_client(
        self, client_id: str, old: StoredClient | None, new: StoredClient | None, entry: AuditEntry
    ) -> bool:
        self._begin_change()
        if self.state.clients.get(client_id) != old:
            return False
        clients = {known: stored for known, stored in self.state.clients.items() if known != client_id}
        self._versions += 1
        if new:
            clients[client_id] = replace(new, version=str(self._versions))
        self._change(replace(self.state, clients=clients), entry)
        return True

    async def replace_enforcement(
        self, old: Enforcement | None, new: Enforcement | None, entry: AuditEntry
    ) -> bool:
        self._begin_change()
        if self.state.enforcement != old:
            return False
        self._change(replace(self.state, enforcement=new), entry)
        return True

    async def reset(self, client_id: str, rule_id: str, entry: AuditEntry) -> None:
        self._begin_change()
        resets = dict(self.state.resets)
        resets[client_id, rule_id] = resets.get((client_id, rule_id), 0) + 1
        self._change(replace(self.state, resets=resets), entry)

    async def note(self, entry: AuditEntry) -> None:
        self._begin_change()
        self._change(self.state, entry)

    async def audit(self, skip: int, limit: int) -> Sequence[AuditEntry]:
        self._ask()
        return self.entries[::-1][skip : skip + limit]

    async def announcements(self) -> AsyncIterator[None]:
        self._ask()
        self.listened += 1
        while True:
            await self.announced.wait()
            self.announced.clear()
            yield

    def _ask(self) -> None:
        if self.away:
            raise StoreUnavailable("no answer")

    def _begin_change(self) -> None:
        self._ask()
        quicker, self.before_change = self.before_change, None
        if quicker:
            quicker()

    def _change(self, state: ControlState, entry: AuditEntry) -> None:
        self._versions += 1
        self.state = replace(state, version=str(self._versions))
        self.entries.append(entry)
        self.announced.set()
