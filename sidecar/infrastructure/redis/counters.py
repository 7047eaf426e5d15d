"""Counters in Redis: all checks of one request, and of others at the same time, in one script call.

Keys are `{prefix}:v1:{client}:rule:generation:identifier`, the client in braces so that in a cluster all
counters of a client share a slot, or, where they are spread, `{client/shard}`. They are so on a single server
too, which may become a cluster. Client and rule ids have no colon, and the identifier comes last, so two
different counters never have the same key. `v1` is the layout of states: an incompatible one gets another,
so that old and new replicas can run side by side.
"""

import time
from asyncio import Future, get_running_loop
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sidecar.application.ports import SERVER_CURSORS
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted
from sidecar.domain.identity import EVERYONE
from sidecar.domain.rule import Rule
from sidecar.domain.sharding import SHARDS
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.batching import Lane, Waiting
from sidecar.infrastructure.redis.calling import Arguments, Caller, Script, Wanted
from sidecar.infrastructure.redis.connection import Store, translated
from sidecar.infrastructure.redis.hits import Hits, counted
from sidecar.infrastructure.redis.pending import Then, into
from sidecar.infrastructure.redis.wire import text

#: What a rule has beside its counters: identifiers begin otherwise.
NO_IDENTIFIER = "!"
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
        self._hits = Hits(prefix, clock)
        self._timeout_seconds = timeout_seconds
        self._listeners = listeners
        self._lanes: dict[str, Lane] = {}

    async def aclose(self) -> None:
        """To be called before its client is closed."""
        for lane in self._lanes.values():
            await lane.aclose()
        await self._caller.aclose()

    def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Future[Counted]:
        answer: Future[Counted] = get_running_loop().create_future()
        slot = self._slot(checks)
        waiting = self._lane(slot).hit(slot, checks, into(answer), charge=charge)
        # Who gives up before it is sent is not charged.
        answer.add_done_callback(lambda _: waiting.give_up())
        return answer

    def hit_then(
        self, checks: Sequence[Check], then: Callable[[Counted | Exception], None], *, charge: bool = True
    ) -> None:
        slot = self._slot(checks)
        self._lane(slot).hit(slot, checks, then, charge=charge)

    def _slot(self, checks: Sequence[Check]) -> int | None:
        """All checks of a request have the same tag; without a cluster it says nothing."""
        return self._caller.slot(checks[0].tag) if self._caller.has_slots else None

    def _lane(self, slot: int | None) -> Lane:
        node = self._caller.node(slot)
        if (lane := self._lanes.get(node)) is None:
            lane = self._lanes[node] = Lane(
                self._decide, self._probe, self._timeout_seconds, self._listeners.breaker
            )
        return lane

    def _decide(self, slot: int | None, together: Sequence[Waiting], wanted: Wanted, then: Then) -> None:
        told = partial(self._answered, [len(one.checks) for one in together], time.perf_counter(), then)
        self._caller.begin(self._script, slot, self._hits.written(together), told, wanted)

    def _answered(self, lengths: Sequence[int], started: float, then: Then, reply: Any) -> None:
        outcome: Sequence[Counted] | Exception
        try:
            if isinstance(reply, Exception):
                outcome = reply
            else:
                self._listeners.answered(time.perf_counter() - started)
                outcome = counted(reply, lengths)
        except Exception as error:
            outcome = error
        then(outcome)

    async def _probe(self, tag: str) -> None:
        """Charges, so that it finds out whether the store can be written to."""
        check = Check(tag, _PROBE, EVERYONE, limit=1, capacity=1, cost=1, resets=-1)
        given = self._hits.written([Waiting([check], lambda _: None, charge=True)])
        with translated():
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
            return int(await self._caller.ask(self._caller.slot(checks[0].tag), "UNLINK", *keys))

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int, *, spread: bool = False
    ) -> tuple[int, list[str]]:
        """Of a client that is spread, each server is gone through once, for all shards that it has."""
        tags = [client_id + shard for shard in SHARDS] if spread else [client_id]
        # "." and "-" are no wildcards, braces neither; ids and prefix have nothing else that is special.
        begin = self.key_beginning(f"{client_id}/??" if spread else client_id, rule, resets)
        number, cursor = divmod(cursor, SERVER_CURSORS)
        if number >= len(tags):
            return 0, []
        with translated():
            if not cursor:
                await self._find_server(tags[number])
            slot = self._caller.slot(tags[number])
            words = "SCAN", cursor, "MATCH", f"{begin}*", "COUNT", SCAN_KEYS
            following, keys = await self._caller.ask(slot, *words)
            cursor = int(following)
            if not cursor:
                number = await self._following_server(tags, number)
        # The beginnings of all shards are of one length.
        found = [text(key)[len(begin) :] for key in keys]
        wanted = [identifier for identifier in found if not identifier.startswith(NO_IDENTIFIER)]
        return number * SERVER_CURSORS + cursor, wanted

    async def _following_server(self, tags: Sequence[str], number: int) -> int:
        """The number of the next tag whose server has none of those before it; 0: no more."""
        gone_through = {self._server(tag) for tag in tags[: number + 1]}
        for following, tag in enumerate(tags[number + 1 :], number + 1):
            await self._find_server(tag)
            if self._server(tag) not in gone_through:
                return following
        return 0

    async def _find_server(self, tag: str) -> None:
        """A search names no key, and so is not redirected; this is."""
        if (slot := self._caller.slot(tag)) is not None:
            await self._caller.ask(slot, "EXISTS", self._hits.tag_key(tag))

    def _server(self, tag: str) -> str:
        return self._caller.node(self._caller.slot(tag))

    def _key(self, check: Check) -> str:
        return self.key_beginning(check.tag, check.rule, check.resets) + check.identifier

    def key_beginning(self, tag: str, rule: Rule, resets: int) -> str:
        return self._hits.key_beginning(tag, rule, resets)
