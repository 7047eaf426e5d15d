"""How many identifiers each rule counts, about: a caller that rotates session ids must not fill the store.

What requests bring is noted in memory and told to the store once a second, which keeps an approximate count
per rule, of all processes. Many of them are an alarm; a rule may have a cap, above which an identifier that
has no counter yet is counted by its address instead.
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Protocol

from sidecar.application.ports import CounterStore, StoreUnavailable
from sidecar.domain.decision import Check
from sidecar.domain.identity import EVERYONE, fallback_to_address
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Rule
from sidecar.domain.ruleset import RuleSet

INTERVAL_SECONDS = 1.0
#: Identifiers of one rule that are noted within an interval; of more, enough are known.
MAX_SEEN = 5000
#: Rules that are told of within an interval; of more, the others come next.
MAX_RULES = 200
_log = logging.getLogger("sidecar.identifiers")

RuleKey = tuple[str, str]


class CensusNews(Protocol):
    def live_identifiers(self, client_id: str, rule_id: str, number: int) -> None: ...


@dataclass(slots=True)
class _Noted:
    rule: Rule
    seen: set[str] = field(default_factory=set)
    #: Said in the log already.
    many: bool = False


class Census:
    """Notes who is counted; `alarm` is the number of a rule's identifiers from which it is a warning."""

    def __init__(self, counters: CounterStore, news: CensusNews) -> None:
        self.alarm = 100_000
        self.rule_set = RuleSet()
        self._counters = counters
        self._news = news
        self._noted: dict[RuleKey, _Noted] = {}
        #: Rules with more identifiers than their own cap.
        self._crowded: set[RuleKey] = set()

    def checks(self, checks: list[Check], request: RequestMetadata) -> list[Check]:
        """The checks, with another identifier for newcomers of crowded rules; and who it is, is noted."""
        for check in checks:
            self._note(check)
        if not self._crowded:
            return checks
        address = fallback_to_address(request.address, self.rule_set.policy.identity)
        return [
            replace(check, instead=address) if (check.client_id, check.rule.id) in self._crowded else check
            for check in checks
        ]

    def _note(self, check: Check) -> None:
        if check.identifier == EVERYONE:
            return
        key = check.client_id, check.rule.id
        if (noted := self._noted.get(key)) is None:
            noted = self._noted[key] = _Noted(check.rule)
        noted.rule = check.rule
        if len(noted.seen) < MAX_SEEN:
            noted.seen.add(check.identifier)

    async def run(self) -> None:
        """Tell the store, again and again, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            try:
                await self.take()
            except StoreUnavailable:
                continue  # it is said elsewhere; what was noted waits
            except Exception:
                _log.exception("identifiers could not be counted")

    async def take(self) -> None:
        """Tell what was noted, and learn how many there are. Raises `StoreUnavailable`."""
        for key in list(self._noted)[:MAX_RULES]:
            noted = self._noted.pop(key)
            self._noted[key] = noted  # the others' turn comes first next time
            await self._taken(key, noted)

    async def _taken(self, key: RuleKey, noted: _Noted) -> None:
        client_id, rule_id = key
        seen, noted.seen = noted.seen, set()
        resets = self.rule_set.resets(client_id, rule_id)
        try:
            number = await self._counters.live_identifiers(client_id, noted.rule, resets, seen)
        except StoreUnavailable:
            noted.seen = seen if not noted.seen else noted.seen
            raise
        self._news.live_identifiers(client_id, rule_id, number)
        self._judge(key, noted, number)
        if not number and not noted.seen:
            del self._noted[key]

    def _judge(self, key: RuleKey, noted: _Noted, number: int) -> None:
        most = noted.rule.max_identifiers
        if most is not None and number > most:
            self._crowded.add(key)
        else:
            self._crowded.discard(key)
        many = number > min(self.alarm, most or self.alarm)
        if many is not noted.many:
            noted.many = many
            extra = {"client": key[0], "rule": key[1], "identifiers": number, "max_identifiers": most}
            if many:
                _log.warning("a rule counts very many identifiers", extra=extra)
            else:
                _log.info("a rule no longer counts very many identifiers", extra=extra)
