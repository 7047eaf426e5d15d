"""What the application needs of the outside, as protocols: the store, and someone who watches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sidecar.domain.decision import Check, Counted, Decision
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client


class StoreUnavailable(Exception):
    """The store could not be asked, or its answer did not come in time: the charge may stand or not."""


class CounterStore(Protocol):
    """Where counters live. Owns the clock: microseconds since the epoch, one reading per call."""

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        """Decide all checks (1 to 64) of one request in one atomic step, all or nothing.

        If every enforcing check fits, each is charged its cost, and then each shadow check that fits; if one
        does not, nothing is. With `charge=False` the same is answered and nothing is charged. Usages come in
        the order of the checks. Raises `StoreUnavailable`, and then says nothing about whether it charged.
        """

    async def ping(self) -> None:
        """Raises `StoreUnavailable` when the store does not answer."""


@dataclass(frozen=True, slots=True)
class StoredClient:
    """A client that the API made, when (UTC), and a version that changes with each change."""

    client: Client
    created_at: datetime
    version: str = ""


class ClientRepository(Protocol):
    """The clients that the API made. Every method raises `StoreUnavailable`."""

    async def all(self) -> Mapping[str, StoredClient]: ...

    async def get(self, client_id: str) -> StoredClient | None: ...

    async def replace(self, client_id: str, old: StoredClient | None, new: StoredClient | None) -> bool:
        """Put `new` in the place of `old` in one step; `None` stands for absent.

        False, with nothing changed, when what is stored no longer has the version of `old`.
        """


class Observer(Protocol):
    """Sees every decision; must not raise or block."""

    def decided(self, request: RequestMetadata, decision: Decision) -> None: ...
