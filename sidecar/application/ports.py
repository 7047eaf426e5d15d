"""What the application needs of the outside, as protocols: the store, and someone who watches."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sidecar.domain.decision import Check, Counted, Decision
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Rule
from sidecar.domain.sharding import SHARDS

#: The one policy with which a store never forgets a counter before its time.
NO_EVICTION = "noeviction"
#: Cursors of one server are less; a search that goes on to others adds this for each shard that it is past.
SERVER_CURSORS = 2**64
MAX_CURSOR = len(SHARDS) * SERVER_CURSORS - 1


class StoreUnavailable(Exception):
    """The store could not be asked, or its answer did not come in time: the charge may stand or not.

    `kind` says why, for metrics: `timeout`, `connection`, `error` (its reply was one), `breaker` (nobody asks
    at the moment) or `overload` (too many are waiting).
    """

    def __init__(self, message: str, kind: str = "connection") -> None:
        self.kind = kind
        super().__init__(message)


class CounterStore(Protocol):
    """Where counters live. Owns the clock: microseconds since the epoch, one reading per call."""

    def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Awaitable[Counted]:
        """Decide all checks (1 to 64, of one tag) of one request in one atomic step, all or nothing.

        If every enforcing check fits, each is charged its cost, and then each shadow check that fits; if one
        does not, nothing is. With `charge=False` the same is answered and nothing is charged. Usages come in
        the order of the checks. Raises `StoreUnavailable`, and then says nothing about whether it charged.
        """

    def hit_then(
        self, checks: Sequence[Check], then: Callable[[Counted | Exception], None], *, charge: bool = True
    ) -> None:
        """The same for who does not wait: `then` is told once, the exception instead of raising it."""

    async def live_identifiers(self, client_id: str, rule: Rule, resets: int, seen: Collection[str]) -> int:
        """Notes identifiers that were seen; says about how many are alive. Raises `StoreUnavailable`.

        Alive is who was seen within the last window, and at most one more.
        """

    async def forget(self, checks: Sequence[Check]) -> int:
        """Begin these counters (of one tag) anew; how many there were. Raises `StoreUnavailable`."""

    def key_beginning(self, tag: str, rule: Rule, resets: int) -> str:
        """What the keys of a rule's counters begin with, those of one tag; the identifier follows."""

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int, *, spread: bool = False
    ) -> tuple[int, list[str]]:
        """Some of the identifiers that have a counter under a rule, and the cursor for more (0: no more).

        `spread` says that the client's counters are not all of its own tag, but of its shards.
        Costs decisions nothing but the server's time for a bounded step. Raises `StoreUnavailable`.
        """


@dataclass(frozen=True, slots=True)
class StoredClient:
    """A client that the API made, when (UTC), and a version that changes with each change."""

    client: Client
    created_at: datetime
    version: str = ""


@dataclass(frozen=True, slots=True)
class ControlState:
    """Everything that the API made, as of one version; versions have no order."""

    version: str = ""
    clients: Mapping[str, StoredClient] = field(default_factory=dict)
    #: Those that this version of the sidecar cannot read: of each a stand-in with its version.
    unreadable: Mapping[str, StoredClient] = field(default_factory=dict)
    #: (client id, rule id) → how often its counters were reset; the rule "*" stands for all.
    resets: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: Stands above the files' own.
    enforcement: Enforcement | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who changed what, when (UTC). `before` and `after` are JSON-able, `None` for absent."""

    at: datetime
    by: str
    action: str
    subject: str
    before: Any = None
    after: Any = None


class ControlStore(Protocol):
    """What the API keeps, shared by all replicas. Every method raises `StoreUnavailable`.

    Each change is one step: it is made, in the audit list and announced, or nothing has happened.
    """

    async def version(self) -> str: ...

    async def eviction_policy(self) -> str:
        """What the store does when its memory is full; empty where that cannot be seen."""

    async def live_processes(self, process: str) -> int:
        """Says that this process is alive, and how many are: those that said so within a few seconds."""

    async def load(self) -> ControlState: ...

    async def replace_client(
        self, client_id: str, old: StoredClient | None, new: StoredClient | None, entry: AuditEntry
    ) -> bool:
        """Put `new` in the place of `old`; `None` stands for absent. False when `old` is no longer stored."""

    async def replace_enforcement(
        self, old: Enforcement | None, new: Enforcement | None, entry: AuditEntry
    ) -> bool: ...

    async def reset(self, client_id: str, rule_id: str, entry: AuditEntry) -> None:
        """Begin new counters for a rule, or for all of a client (`*`)."""

    async def note(self, entry: AuditEntry) -> None:
        """Nothing but an entry in the audit list."""

    async def audit(self, skip: int, limit: int) -> Sequence[AuditEntry]:
        """The newest entries first; at most 1,000 are kept."""

    def announcements(self) -> AsyncIterator[None]:
        """One `None` for each change that is announced, while the connection lasts; some may be lost."""


class Observer(Protocol):
    """Sees every decision; must not raise or block."""

    def decided(self, request: RequestMetadata, decision: Decision) -> None: ...
