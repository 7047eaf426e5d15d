"""Looking at counters and resetting them, without charging anything."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.application.ports import CounterStore
from sidecar.domain.decision import Check
from sidecar.domain.identity import (
    EVERYONE,
    IdentifierReader,
    IdentityOptions,
    check_written,
    identifier_types,
    shown_identifier,
)
from sidecar.domain.route import RoutePattern
from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import MAX_CHECKS, RuleSet

#: What one look for the busiest identifiers goes through at most.
MAX_IDENTIFIERS = 100_000


@dataclass(frozen=True, slots=True)
class IdentifierCount:
    """One identifier, as it may be shown, and the units that it uses."""

    identifier: str
    count: int


@dataclass(frozen=True, slots=True)
class Busiest:
    """The identifiers with the highest counts; `complete` unless there were too many to look at."""

    identifiers: list[IdentifierCount]
    looked_at: int
    complete: bool


class CounterUsage:
    """What counters say now. Methods raise `StoreUnavailable`."""

    def __init__(self, counters: CounterStore) -> None:
        self._counters = counters
        self.rule_set = RuleSet()

    async def counts(self, client: Client, identifier: str | None = None) -> list[int | None]:
        """The units in use for each rule of the client, in their order.

        Rules that count everyone together need no identifier; the others are counted for `identifier` (the
        parts of a combined key joined by `|`), else `None`, as are rules that count nothing or for which
        this can be no identifier.
        """
        checks = {rule.id: check for rule in client.rules if (check := self._check(client, rule, identifier))}
        used = await self._used(list(checks.values()))
        by_rule = dict(zip(checks, used, strict=True))
        return [by_rule.get(rule.id) for rule in client.rules]

    async def identifiers(self, client: Client, rule: Rule, cursor: int) -> tuple[int, list[IdentifierCount]]:
        """Some of a rule's identifiers, and the cursor for more (0: no more); a page may be empty or long."""
        following, texts = await self._counters.identifiers(
            client.id, rule, self._resets(client, rule), cursor
        )
        used = await self._used([self._check_of(client, rule, text) for text in texts])
        return following, [
            IdentifierCount(shown_identifier(rule.identifier_type, text), count)
            for text, count in zip(texts, used, strict=True)
            if count
        ]

    async def busiest(self, client: Client, rule: Rule, most: int) -> Busiest:
        """The `most` identifiers that use most; costs decisions nothing but the server's time."""
        cursor, looked_at, best = 0, 0, list[IdentifierCount]()
        while True:
            cursor, page = await self.identifiers(client, rule, cursor)
            looked_at += len(page)
            best = heapq.nlargest(most, {one.identifier: one for one in [*best, *page]}.values(), key=_count)
            if cursor == 0 or looked_at >= MAX_IDENTIFIERS:
                return Busiest(best, looked_at, cursor == 0)

    async def forget(self, client: Client, rules: Sequence[Rule], identifier: str) -> int:
        """Begin the counters of one identifier anew, never those of everyone; how many there were."""
        checks = [check for rule in rules if (check := self._check_for(client, rule, identifier))]
        return await self._counters.forget(checks) if checks else 0

    async def _used(self, checks: Sequence[Check]) -> list[int]:
        used: list[int] = []
        for start in range(0, len(checks), MAX_CHECKS):
            counted = await self._counters.hit(checks[start : start + MAX_CHECKS], charge=False)
            used += [usage.used for usage in counted.usages]
        return used

    def _check(self, client: Client, rule: Rule, identifier: str | None) -> Check | None:
        if rule.counts and identifier_types(rule.identifier_type) == ("none",):
            return self._check_of(client, rule, EVERYONE)
        return None if identifier is None else self._check_for(client, rule, identifier)

    def _check_for(self, client: Client, rule: Rule, identifier: str) -> Check | None:
        if not rule.counts or check_written(rule.identifier_type, identifier):
            return None
        reader = _reader(rule, self.rule_set.policy.identity)
        return self._check_of(client, rule, reader.identifier(reader.parse(identifier)))

    def _check_of(self, client: Client, rule: Rule, text: str) -> Check:
        reader = _reader(rule, self.rule_set.policy.identity)
        own = {reader.identifier(reader.parse(name)): limit for name, limit in rule.overrides.items()}
        limit = own.get(text)
        terms = rule.terms(limit if isinstance(limit, int) else None)
        return Check(
            client_id=client.id,
            rule=rule,
            identifier=text,
            limit=terms.limit,
            capacity=terms.capacity,
            cost=rule.cost,
            resets=self._resets(client, rule),
        )

    def _resets(self, client: Client, rule: Rule) -> int:
        return self.rule_set.resets(client.id, rule.id)


def _reader(rule: Rule, options: IdentityOptions) -> IdentifierReader:
    parameters = dict(RoutePattern.parse(rule.route).parameters)
    return IdentifierReader(rule.identifier_type, parameters, options)


def _count(one: IdentifierCount) -> int:
    return one.count
