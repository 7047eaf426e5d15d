"""A `CounterStore` in memory, for tests of what is built on one."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Counted
from sidecar.domain.rule import Rule
from tests.decisions import NOW_US


@dataclass
class MemoryStore:
    """At a standing clock; `problem` is what it raises instead of answering.

    `calls` says of each call how many checks it carried, `charges` whether it was to charge.
    """

    problem: Exception | None = None
    calls: list[int] = field(default_factory=list)
    charges: list[bool] = field(default_factory=list)
    #: Identifiers in the pages in which they are found.
    pages: list[list[str]] = field(default_factory=lambda: [[]])
    #: Whether they were asked for as those of a client that is spread.
    spread: bool = False
    #: For which client, rule and number of resets they were asked for last.
    searched: tuple[str, str, int] | None = None
    #: The keys of the counters that there are.
    charged: set[str] = field(default_factory=set)
    #: Those that were told, by client, rule and number of resets.
    live: dict[tuple[str, str, int], set[str]] = field(default_factory=dict)
    counters: MemoryCounters = field(default_factory=MemoryCounters)

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        return self._hit(checks, charge=charge)

    def hit_then(
        self, checks: Sequence[Check], then: Callable[[Counted | Exception], None], *, charge: bool = True
    ) -> None:
        try:
            outcome: Counted | Exception = self._hit(checks, charge=charge)
        except Exception as error:
            outcome = error
        then(outcome)

    def _hit(self, checks: Sequence[Check], *, charge: bool) -> Counted:
        if self.problem:
            raise self.problem
        assert len({check.tag for check in checks}) == 1, "a cluster would refuse this"
        self.calls.append(len(checks))
        self.charges.append(charge)
        counted = self.counters.hit(checks, NOW_US, charge=charge)
        if charge and counted.admitted:
            self.charged |= {self._key(check) for check in checks}
        return counted

    async def live_identifiers(self, client_id: str, rule: Rule, resets: int, seen: Collection[str]) -> int:
        if self.problem:
            raise self.problem
        known = self.live.setdefault((client_id, rule.id, resets), set())
        known |= set(seen)
        return len(known)

    async def forget(self, checks: Sequence[Check]) -> int:
        if self.problem:
            raise self.problem
        assert len({check.tag for check in checks}) == 1, "a cluster would refuse this"
        keys = {self._key(check) for check in checks}
        forgotten = len(keys & self.charged)
        self.charged -= keys
        return forgotten

    def key_beginning(self, tag: str, rule: Rule, resets: int) -> str:
        return f"t:{tag}:{rule.id}:{rule.generation}.{resets}:"

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int, *, spread: bool = False
    ) -> tuple[int, list[str]]:
        if self.problem:
            raise self.problem
        self.searched, self.spread = (client_id, rule.id, resets), spread
        return (cursor + 1) % len(self.pages), self.pages[cursor]

    def _key(self, check: Check) -> str:
        return self.key_beginning(check.tag, check.rule, check.resets) + check.identifier
