"""Looking at counters and resetting them, without charging anything."""

import heapq
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from sidecar.application.searching import Searches
from sidecar.domain.decision import Check
from sidecar.domain.identity import (
    EVERYONE,
    IdentifierReader,
    check_written,
    encode,
    hashed,
    identifier_types,
    shown_identifier,
)
from sidecar.domain.route import RoutePattern
from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import MAX_CHECKS, RuleSet
from sidecar.domain.sharding import ShardBy, shard_of

#: What one look for the busiest identifiers goes through at most: so many identifiers, in so many steps.
MAX_IDENTIFIERS = 100_000
MAX_STEPS = 1000
#: Identifiers, or parts of combined ones, that callers would send otherwise than they are shown.
_OTHERWISE = re.compile(r"(?:^|\|)(?:[0-9a-f]{8}|[0-9a-f]{64}|\?)(?:\||$)")
#: What a missing identifier fell back on, as it is shown and as it is counted.
_FALLBACK = re.compile(r"~shared|~ip=(?:\?|[0-9a-f.:/]{2,64})")


@dataclass(frozen=True, slots=True)
class IdentifierCount:
    """One identifier, as it may be shown, and the units that it uses."""

    identifier: str
    count: int


@dataclass(frozen=True, slots=True)
class InUse:
    """The units in use of one counter, and those that remain, never fewer than none."""

    count: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Busiest:
    """The identifiers with the highest counts; `complete` unless there were too many to look at."""

    identifiers: list[IdentifierCount]
    looked_at: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The counters of one identifier, and how it may be shown."""

    shown: str
    checks: list[Check]


class CounterUsage:
    """What counters say now. Methods raise `StoreUnavailable`, and `TooManySearches` where they search."""

    def __init__(self, searches: Searches) -> None:
        self._searches = searches
        self._counters = searches.counters
        self.rule_set = RuleSet()
        #: Told when counters were reset.
        self.on_forget: Callable[[], None] = lambda: None

    async def counts(self, client: Client, identifier: str | None = None) -> list[InUse | None]:
        """What is in use of each rule of the client, in their order.

        Rules that count everyone together need no identifier; the others are counted for `identifier` (the
        parts of a combined key joined by `|`, or a fallback as it is shown), else `None`, as are rules that
        count nothing or for which this can be no identifier.
        """
        checks = [check for rule in client.rules for check in self._checks(client, rule, identifier)]
        by_rule: dict[str, InUse] = {}
        for check, used in zip(checks, await self._used(checks), strict=True):
            count = used + (by_rule[check.rule.id].count if check.rule.id in by_rule else 0)
            by_rule[check.rule.id] = InUse(count, max(0, check.capacity - count))
        return [by_rule.get(rule.id) for rule in client.rules]

    async def identifiers(self, client: Client, rule: Rule, cursor: int) -> tuple[int, list[IdentifierCount]]:
        """Some of a rule's identifiers, and the cursor for more (0: no more); a page may be empty or long."""
        naming = self._naming(client, rule)
        async with self._searches.turn():
            following, texts = await self._counters.identifiers(
                client.id, rule, naming.resets, cursor, spread=naming.spread
            )
            return following, await self._counted(naming, texts)

    async def busiest(self, client: Client, rule: Rule, most: int) -> Busiest:
        """The `most` identifiers that use most; costs decisions nothing but the server's time."""
        naming = self._naming(client, rule)
        looked_at, steps, best = 0, 0, list[IdentifierCount]()
        async with self._searches.turn():
            async for texts, last in self._pages(naming):
                looked_at, steps, complete = looked_at + len(texts), steps + 1, last
                page = await self._counted(naming, texts)
                found = {one.identifier: one for one in [*best, *page]}
                best = heapq.nlargest(most, found.values(), key=_count)
                if looked_at >= MAX_IDENTIFIERS or steps >= MAX_STEPS:
                    break
        return Busiest(best, looked_at, complete)

    async def find(self, client: Client, rules: Sequence[Rule], identifier: str) -> Found:
        """The counters of one identifier, as callers send it or as it is shown; never those of everyone.

        What is shown otherwise than it is sent is searched for only where nobody uses the text itself.
        """
        naming = [self._naming(client, rule) for rule in rules if _names_somebody(rule)]
        checks = [check for each in naming for check in each.checks_for(identifier)]
        if any(await self._used(checks)) or not _OTHERWISE.search(identifier):
            return Found(_shown(checks, identifier), checks)
        async with self._searches.turn():
            found = [check for each in naming for check in await self._shown_as(each, identifier)]
        return Found(identifier, [*checks, *found]) if found else Found(_shown(checks, identifier), checks)

    async def forget(self, checks: Sequence[Check]) -> int:
        """Begin these counters anew; how many there were."""
        try:
            return sum([await self._counters.forget([checks[n] for n in call]) for call in _calls(checks)])
        finally:
            self.on_forget()

    async def _shown_as(self, naming: "_Naming", identifier: str) -> list[Check]:
        kind, found = naming.rule.identifier_type, dict[str, None]()
        async for texts, _ in self._pages(naming):
            found |= dict.fromkeys(text for text in texts if shown_identifier(kind, text) == identifier)
        return [naming.check(text) for text in found]

    def _pages(self, naming: "_Naming") -> AsyncIterator[tuple[list[str], bool]]:
        return self._searches.pages(naming.client.id, naming.rule, naming.resets, spread=naming.spread)

    async def _counted(self, naming: "_Naming", texts: Sequence[str]) -> list[IdentifierCount]:
        used = await self._used([naming.check(text) for text in texts])
        return [
            IdentifierCount(shown_identifier(naming.rule.identifier_type, text), count)
            for text, count in zip(texts, used, strict=True)
            if count
        ]

    async def _used(self, checks: Sequence[Check]) -> list[int]:
        used = [0] * len(checks)
        for call in _calls(checks):
            counted = await self._counters.hit([checks[n] for n in call], charge=False)
            for n, usage in zip(call, counted.usages, strict=True):
                used[n] = usage.used
        return used

    def _checks(self, client: Client, rule: Rule, identifier: str | None) -> list[Check]:
        if rule.counts and identifier_types(rule.identifier_type) == ("none",):
            return [self._naming(client, rule).check(EVERYONE)]
        if identifier is None or not _names_somebody(rule):
            return []
        return self._naming(client, rule).checks_for(identifier)

    def _naming(self, client: Client, rule: Rule) -> "_Naming":
        return _Naming(client, rule, self.rule_set)


class _Naming:
    """How the counters of one rule are named; made once per call, since overrides may be very many."""

    def __init__(self, client: Client, rule: Rule, rule_set: RuleSet) -> None:
        self.client, self.rule = client, rule
        self.resets = rule_set.resets(client.id, rule.id)
        self.spread = client.shard_by is ShardBy.IDENTIFIER
        parameters = dict(RoutePattern.parse(rule.route).parameters)
        self._reader = IdentifierReader(rule.identifier_type, parameters, rule_set.policy.identity)
        self._own = {self._text(name): own for name, own in rule.overrides.items() if isinstance(own, int)}

    def checks_for(self, identifier: str) -> list[Check]:
        """Of the identifier as callers send it; of a fallback as it is shown, too."""
        texts = [] if check_written(self.rule.identifier_type, identifier) else [self._text(identifier)]
        texts += [identifier] if _FALLBACK.fullmatch(identifier) else []
        return [self.check(text) for text in texts]

    def check(self, text: str) -> Check:
        terms = self.rule.terms(self._own.get(text))
        return Check(
            client_id=self.client.id,
            rule=self.rule,
            identifier=text,
            limit=terms.limit,
            capacity=terms.capacity,
            cost=self.rule.cost,
            resets=self.resets,
            shard=shard_of(text) if self.spread else "",
        )

    def _text(self, written: str) -> str:
        return self._reader.identifier(self._reader.parse(written))


def _calls(checks: Sequence[Check]) -> Iterator[list[int]]:
    """Which of them travel together: those of one tag, as many as a call carries."""
    by_tag: dict[str, list[int]] = {}
    for number, check in enumerate(checks):
        by_tag.setdefault(check.tag, []).append(number)
    for numbers in by_tag.values():
        yield from (numbers[start : start + MAX_CHECKS] for start in range(0, len(numbers), MAX_CHECKS))


def _names_somebody(rule: Rule) -> bool:
    return rule.counts and identifier_types(rule.identifier_type) != ("none",)


def _shown(checks: Sequence[Check], identifier: str) -> str:
    """As it may be shown, whichever of these rules it is a secret for."""
    if _FALLBACK.fullmatch(identifier):
        return identifier
    shown = {shown_identifier(check.rule.identifier_type, check.identifier) for check in checks}
    return shown.pop() if len(shown) == 1 else hashed(encode(identifier))


def _count(one: IdentifierCount) -> int:
    return one.count
