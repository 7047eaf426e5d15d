"""How many identifiers each rule counts, about: a caller that rotates session ids must not fill the store.

Who was counted is noted in memory and told to the store once a second, which keeps an approximate count per
rule, of all processes. Many of them are an alarm; a rule may have a cap, above which an identifier that has
no counter yet is counted by its address instead. Until the store has said that there are too many, a process
knows its own: no interval brings more new counters than the cap, for each process, or than `MAX_SEEN`.

Who is refused is not noted: nothing was begun for it. So whoever an `ip` rule refuses does not make a rule
of sessions crowded. But a newcomer that is refused because the rule is crowded keeps it so.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sidecar.application.ports import CounterStore, StoreUnavailable
from sidecar.application.tasks import was_cancelled
from sidecar.domain.decision import Check, Counted
from sidecar.domain.identity import EVERYONE, fallback_to_address, is_fallback
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Rule
from sidecar.domain.ruleset import RuleSet

INTERVAL_SECONDS = 1.0
#: Identifiers of one rule that are noted within an interval, and of all rules; of more, enough are known.
MAX_SEEN, MAX_SEEN_OF_ALL = 5000, 100_000
#: Rules that are told of within an interval; of more, the others come next.
MAX_RULES = 200
#: Fewer again is what is below this part of the alarm: a number that goes up and down is one alarm.
CALM = 0.9
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
        #: How many identifiers stand there.
        self._seen = 0
        #: Rules with more identifiers than their own cap.
        self._crowded: set[RuleKey] = set()

    def checks(self, checks: list[Check], request: RequestMetadata) -> list[Check]:
        """The checks, with another identifier for newcomers of crowded rules."""
        if not self._crowded:
            return checks
        address = fallback_to_address(request.address, self.rule_set.policy.identity)
        return [replace(check, instead=address) if self._is_open(check) else check for check in checks]

    def _is_open(self, check: Check) -> bool:
        """Whether the check may be of any number of identifiers, in a crowded rule.

        Those that the rule itself names, and those that stand in for missing ones, are not so many.
        """
        return (
            (check.client_id, check.rule.id) in self._crowded
            and check.limit == check.rule.limit
            and check.identifier != EVERYONE
            and not is_fallback(check.identifier)
        )

    def counted(self, checks: Sequence[Check], counted: Counted) -> None:
        """These were charged, or refused."""
        admitted = counted.admitted
        for check, usage in zip(checks, counted.usages):  # noqa: B905 the store answers each
            if usage.fits if admitted else check.instead and not usage.fits:
                self._note(check)

    def _note(self, check: Check) -> None:
        if check.identifier == EVERYONE:
            return
        key = check.client_id, check.rule.id
        if (noted := self._noted.get(key)) is None:
            noted = self._noted[key] = _Noted(check.rule)
        noted.rule = check.rule
        seen = noted.seen
        if check.identifier not in seen and len(seen) < MAX_SEEN and self._seen < MAX_SEEN_OF_ALL:
            if len(seen) == check.rule.max_identifiers:
                self._crowded.add(key)
            seen.add(check.identifier)
            self._seen += 1

    async def run(self) -> None:
        """Tell the store, again and again, until cancelled."""
        while not was_cancelled():
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
        seen, noted.seen = noted.seen, set()
        rule, resets = noted.rule, self.rule_set.resets(*key)
        try:
            number = await self._counters.live_identifiers(key[0], rule, resets, seen)
        except StoreUnavailable:
            noted.seen, seen = (seen, set()) if not noted.seen else (noted.seen, seen)
            raise
        finally:
            self._seen -= len(seen)
        self._news.live_identifiers(*key, number)
        self._judge(key, noted, number)
        if not number and not noted.seen:
            del self._noted[key]

    def _judge(self, key: RuleKey, noted: _Noted, number: int) -> None:
        most = noted.rule.max_identifiers
        if most is not None and max(number, len(noted.seen)) > most:
            self._crowded.add(key)
        else:
            self._crowded.discard(key)
        threshold = min(self.alarm, most or self.alarm)
        many = number > (threshold * CALM if noted.many else threshold)
        if many is not noted.many:
            noted.many = many
            extra = {"client": key[0], "rule": key[1], "identifiers": number, "max_identifiers": most}
            if many:
                _log.warning("a rule counts very many identifiers", extra=extra)
            else:
                _log.info("a rule no longer counts very many identifiers", extra=extra)
