"""Looking at counters, without charging them."""

from collections.abc import Sequence

from sidecar.application.ports import CounterStore
from sidecar.domain.decision import Check
from sidecar.domain.identity import IdentifierReader, IdentityOptions, identifier_types
from sidecar.domain.route import RoutePattern
from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import MAX_CHECKS


class CounterUsage:
    """What counters say now."""

    def __init__(self, counters: CounterStore, options: IdentityOptions) -> None:
        self._counters = counters
        self._options = options

    async def counts(self, client: Client, identifier: str | None = None) -> list[int | None]:
        """The units in use for each rule of the client, in their order.

        Rules that count everyone together need no identifier; the others are counted for `identifier` (the
        parts of a combined key joined by `|`), else `None`, as are rules that count nothing.
        Raises `StoreUnavailable`.
        """
        checks = {rule.id: check for rule in client.rules if (check := self._check(client, rule, identifier))}
        used = await self._used(list(checks.values()))
        by_rule = dict(zip(checks, used, strict=True))
        return [by_rule.get(rule.id) for rule in client.rules]

    async def _used(self, checks: Sequence[Check]) -> list[int]:
        used: list[int] = []
        for start in range(0, len(checks), MAX_CHECKS):
            counted = await self._counters.hit(checks[start : start + MAX_CHECKS], charge=False)
            used += [usage.used for usage in counted.usages]
        return used

    def _check(self, client: Client, rule: Rule, identifier: str | None) -> Check | None:
        if not rule.counts:
            return None
        if identifier_types(rule.identifier_type) == ("none",):
            identifier = ""
        if identifier is None:
            return None
        reader = IdentifierReader(
            rule.identifier_type, dict(RoutePattern.parse(rule.route).parameters), self._options
        )
        values = reader.parse(identifier)
        terms = rule.terms()
        return Check(client.id, rule, reader.identifier(values), terms.limit, terms.capacity, rule.cost)
