"""The front of the data port on a real port, its counters in memory."""

import asyncio
from dataclasses import dataclass, field

from sidecar.application.census import Census
from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.application.readiness import Readiness
from sidecar.application.searching import Searches
from sidecar.application.user_rates import UserRates
from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Mode, OnMissing, OnUnavailable, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.http.front import Front
from sidecar.infrastructure.http.server import data_runner
from tests.counters import MemoryStore
from tests.decisions import rule
from tests.raw_http import Headers, Reply, ask


@dataclass
class Watcher:
    """Sees what happened."""

    decided_requests: list[tuple[RequestMetadata, Decision]] = field(default_factory=list)
    unreadable: int = 0
    unreadable_targets: list[str] = field(default_factory=list)
    identifiers: dict[tuple[str, str], int] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        self.decided_requests.append((request, decision))

    def unreadable_address(self) -> None:
        self.unreadable += 1

    def live_identifiers(self, client_id: str, rule_id: str, number: int) -> None:
        self.identifiers[client_id, rule_id] = number

    def unreadable_target(self, dialect: str) -> None:
        self.unreadable_targets.append(dialect)

    def peer_refused(self, reason: str, peer: str) -> None:
        self.refused.append((reason, peer))


CLIENTS = [
    Client(id="c", rules=(rule("two", limit=2),)),
    Client(id="other", hosts=("other.example",), rules=(rule("one", limit=1),)),
    Client(id="shut", rules=(Rule(id="no", route="/*", mode=Mode.BLOCK),)),
    Client(id="known", rules=(rule("who", identifier_type="session_id", on_missing=OnMissing.DENY),)),
    Client(id="closed", rules=(rule("safe", on_unavailable=OnUnavailable.DENY),)),
]


class Served:
    """A front that is being served."""

    def __init__(self) -> None:
        self.store, self.watcher, self.readiness = MemoryStore(), Watcher(), Readiness(True, True)
        self.without_store = WithoutStore(LocalCounters())
        self.evaluator = RateLimitEvaluator(
            self.store, self.watcher, self.without_store, Census(self.store, self.watcher)
        )
        self.evaluator.rule_set = RuleSet(CLIENTS, Policy(default_client="c"))
        self.rates = UserRates(self.store, self.watcher, Searches(self.store), self.without_store)
        self.front = Front(self.evaluator, self.rates, self.readiness, self.watcher)
        self.runner = data_runner(self.front)
        self.port = 0

    async def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        return await asyncio.to_thread(ask, self.port, method, target, headers, body)

    async def remaining(self, target: str, headers: Headers = ()) -> str | None:
        return (await self.ask("GET", target, headers)).headers.get("x-ratelimit-remaining")
