"""Counters in Redis: all checks of one request, and of others at the same time, in one script call.

Keys are `{prefix}:v1:{client}:rule:generation:identifier`, the client in braces so that in a cluster all
counters of a client share a slot. Client and rule ids have no colon, and the identifier comes last, so two
different counters never have the same key. `v1` is the layout of states: an incompatible one gets another,
so that old and new replicas can run side by side.
"""

import time
from asyncio import Future
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted, Usage
from sidecar.domain.identity import EVERYONE
from sidecar.domain.rule import Rule
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.batching import Lane, Waiting
from sidecar.infrastructure.redis.calling import Arguments, Caller, Script
from sidecar.infrastructure.redis.connection import Store, translated
from sidecar.infrastructure.redis.wire import bulk, bulks, text

LAYOUT = "v1"
#: What a rule has beside its counters: identifiers begin otherwise.
NO_IDENTIFIER = "!"
#: That the script answers for each check.
NUMBERS = 3
#: Kinds of checks whose terms are kept as the script is told them.
MAX_WRITTEN = 10_000
#: Keys that one step of a search looks at.
SCAN_KEYS = 1000
#: What a store that was away is asked: a counter of nobody's, since its reset number is none.
_PROBE = Rule(
    id="probe",
    route="/*",
    identifier_type="none",
    algorithm=Algorithm.FIXED_WINDOW,
    limit=1,
    window_seconds=1,
)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Told of each answered call how many seconds it took, and of a breaker whether it opened or closed."""

    answered: Callable[[float], None] = lambda seconds: None
    breaker: Callable[[bool], None] = lambda is_open: None


NOBODY = Listeners()


class RedisCounterStore:
    """The `CounterStore` on Redis 6.2 or newer, or Valkey: one server, one that sentinels name, a cluster.

    `timeout_seconds` bounds what a request may wait: for its turn, a connection, the answer. `clock` stands
    in for the server's clock in tests.
    """

    def __init__(
        self,
        redis: Store,
        *,
        prefix: str,
        timeout_seconds: float,
        listeners: Listeners = NOBODY,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._caller = Caller(redis)
        self._script = Script(scripts.hit())
        self._census = Script(scripts.census())
        self._prefix = prefix
        self._timeout_seconds = timeout_seconds
        self._listeners = listeners
        self._clock = clock
        self._lanes: dict[str, Lane] = {}
        #: With the rule, so that its id stays its own.
        self._written: dict[tuple[int, int, int, int, bool, bool], tuple[Rule, bytes]] = {}

    def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Future[Counted]:
        slot = self._caller.slot(checks[0].client_id)
        return self._lane(slot).hit(slot, checks, charge=charge)

    def _lane(self, slot: int | None) -> Lane:
        node = self._caller.node(slot)
        if (lane := self._lanes.get(node)) is None:
            lane = self._lanes[node] = Lane(
                self._decided, self._probe, self._timeout_seconds, self._listeners.breaker
            )
        return lane

    async def _decided(self, slot: int | None, together: Sequence[Waiting]) -> list[Counted]:
        keys = [bulk(key) for one in together for check in one.checks for key in self._keys(check)]
        number, words = self._words(together)
        given = Arguments(len(keys), len(keys) + number, keys + words)
        started = time.perf_counter()
        reply = await self._caller.call(
            self._script, slot, given, lambda: not all(one.answer.done() for one in together)
        )
        self._listeners.answered(time.perf_counter() - started)
        return _counted(reply, [len(one.checks) for one in together])

    def _words(self, together: Sequence[Waiting]) -> tuple[int, list[bytes]]:
        """How many words the script is given beside keys, and these: most requests of a call are alike."""
        kinds: dict[bytes, int] = {}
        shapes = [
            (one.charge, *[kinds.setdefault(self._kind(check), len(kinds) + 1) for check in one.checks])
            for one in together
        ]
        alike = [
            word
            for (charge, *asked), same in groupby(shapes)
            for word in (len(list(same)), int(charge), len(asked), *asked)
        ]
        now = bulk(self._clock() if self._clock else "")
        return 2 + len(kinds) + len(alike), [now, bulk(len(kinds)), *kinds, bulks(alike)]

    async def _probe(self, tag: str) -> None:
        """Charges, so that it finds out whether the store can be written to."""
        key = f"{self._prefix}:{LAYOUT}:{{{tag}}}:{_PROBE.id}:{_PROBE.generation}.-1:{EVERYONE}"
        check = Check(tag, _PROBE, EVERYONE, limit=1, capacity=1, cost=1)
        with translated():
            alike = 1, 1, 1, 1  # one request, charged, of one check, of the first kind
            given = Arguments.of([key], ["", 1, _terms(check), *alike])
            await self._caller.call(self._script, self._caller.slot(tag), given)

    async def live_identifiers(self, client_id: str, rule: Rule, resets: int, seen: Collection[str]) -> int:
        window_ms = (rule.window_seconds or 1) * 1000
        begin = self.key_beginning(client_id, rule, resets)
        with translated():
            given = Arguments.of([f"{begin}{NO_IDENTIFIER}{turn}" for turn in (0, 1)], [window_ms, *seen])
            reply = await self._caller.call(self._census, self._caller.slot(client_id), given)
        return int(reply)

    async def forget(self, checks: Sequence[Check]) -> int:
        with translated():
            keys = [self._key(check) for check in checks]
            return int(await self._caller.ask(self._caller.slot(checks[0].client_id), "UNLINK", *keys))

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int
    ) -> tuple[int, list[str]]:
        begin, slot = self.key_beginning(client_id, rule, resets), self._caller.slot(client_id)
        with translated():
            # "." and "-" are no wildcards, braces neither; ids and prefix have nothing else that is special.
            if slot is not None and not cursor:
                # A search names no key, and so is not redirected.
                await self._caller.ask(slot, "EXISTS", begin)
            words = "SCAN", cursor, "MATCH", f"{begin}*", "COUNT", SCAN_KEYS
            following, keys = await self._caller.ask(slot, *words)
        found = [text(key).removeprefix(begin) for key in keys]
        return int(following), [
            identifier for identifier in found if not identifier.startswith(NO_IDENTIFIER)
        ]

    def _keys(self, check: Check) -> Iterator[str]:
        yield (beginning := self.key_beginning(check.client_id, check.rule, check.resets)) + check.identifier
        if check.instead is not None:
            yield beginning + check.instead

    def _key(self, check: Check) -> str:
        return self.key_beginning(check.client_id, check.rule, check.resets) + check.identifier

    def _kind(self, check: Check) -> bytes:
        """Written once for each kind of check; the few that there are come again and again."""
        kind = id(check.rule), check.limit, check.capacity, check.cost, check.shadow, check.instead is None
        found = self._written.get(kind)
        if found is None or found[0] is not check.rule:
            if len(self._written) >= MAX_WRITTEN:
                self._written.clear()
            found = self._written[kind] = check.rule, bulk(_terms(check))
        return found[1]

    def key_beginning(self, client_id: str, rule: Rule, resets: int) -> str:
        generation = f"{rule.generation}.{resets}" if resets else rule.generation
        return f"{self._prefix}:{LAYOUT}:{{{client_id}}}:{rule.id}:{generation}:"


def _terms(check: Check) -> str:
    """What a check is held to, as the script reads it."""
    terms, algorithm = check.rule.terms(check.limit), check.rule.algorithm
    # Lua would read 2^53 + 1 as 2^53; twice the capacity fits no more than any other cost above it.
    cost = check.cost if check.cost <= check.capacity else 2 * check.capacity
    gained, unit = terms.refill if algorithm is Algorithm.TOKEN_BUCKET else (0, 0)
    numbers = int(check.shadow), check.capacity, cost, terms.window_us, gained, unit
    return ":".join(map(str, (algorithm.value, *numbers, int(check.instead is not None))))


def _counted(reply: list[int], lengths: Sequence[int]) -> list[Counted]:
    """The answers of the requests with so many checks each."""
    if len(reply) != 1 + len(lengths) + NUMBERS * sum(lengths):
        raise StoreUnavailable(f"the script answered {len(reply)} numbers for {sum(lengths)} checks")
    now_us, at = reply[0], 1
    answers = []
    for length in lengths:
        first, end = at + 1, at + 1 + NUMBERS * length
        usages = [
            Usage(retry == 0, used, None if retry < 0 else retry, reset)
            for used, retry, reset in zip(*[iter(reply[first:end])] * NUMBERS, strict=True)
        ]
        answers.append(Counted(reply[at] == 1, now_us, usages))
        at = end
    return answers
