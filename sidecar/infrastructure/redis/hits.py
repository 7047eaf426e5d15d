"""Requests as the keys and words of `scripts/hit.lua`, and its answer as what they are told.

Most checks of a call are of a few kinds and most of its requests alike, so each kind is written once, and for
requests that follow each other how many are alike. What is the same in each key is written beforehand, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted, Usage
from sidecar.domain.rule import Rule
from sidecar.infrastructure.redis.batching import Waiting
from sidecar.infrastructure.redis.calling import Arguments
from sidecar.infrastructure.redis.wire import bulk, bulks

LAYOUT = "v1"
#: Words that the script takes for each kind of check; numbers that it answers for each check.
WORDS, NUMBERS = 8, 3
#: Kinds of checks that are kept written.
MAX_KINDS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """What checks have in common that differ in the identifier alone."""

    #: Kept, so that its id stays its own.
    rule: Rule
    beginning: str
    words: bytes


class Hits:
    """Writes calls. `clock` stands in for the server's clock in tests."""

    def __init__(self, prefix: str, clock: Callable[[], int] | None) -> None:
        self._prefix = prefix
        self._clock = clock
        self._kinds: dict[tuple[int, str, str, int, int, int, bool, int, bool], _Kind] = {}

    def written(self, together: Sequence[Waiting]) -> Arguments:
        """The call that decides these requests, in their order."""
        keys: list[bytes] = []
        kinds: dict[bytes, int] = {}
        alike: list[int] = []
        last: list[int] = []
        for one in together:
            request = [one.charge, len(one.checks)]
            for check in one.checks:
                kind = self._kind(check)
                keys.append(_key(kind.beginning, check.identifier))
                if check.instead is not None:
                    keys.append(_key(kind.beginning, check.instead))
                request.append(kinds.setdefault(kind.words, len(kinds) + 1))
            if request == last:
                alike[-len(request) - 1] += 1
            else:
                alike += [1, *request]
                last = request
        now = bulk(self._clock() if self._clock else "")
        words = [now, bulk(len(kinds)), *kinds, bulks(map(int, alike))]
        return Arguments(len(keys), len(keys) + 2 + WORDS * len(kinds) + len(alike), keys + words)

    def key_beginning(self, tag: str, rule: Rule, resets: int) -> str:
        generation = f"{rule.generation}.{resets}" if resets else rule.generation
        return f"{self.tag_key(tag)}:{rule.id}:{generation}:"

    def tag_key(self, tag: str) -> str:
        """A key with this hash tag, of nothing."""
        return f"{self._prefix}:{LAYOUT}:{{{tag}}}"

    def _kind(self, check: Check) -> _Kind:
        rule, newcomer = check.rule, check.instead is not None
        key = (
            id(rule),
            check.client_id,
            check.shard,
            check.limit,
            check.capacity,
            check.cost,
            check.shadow,
            check.resets,
            newcomer,
        )
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            beginning = self.key_beginning(check.tag, rule, check.resets)
            kind = self._kinds[key] = _Kind(rule, beginning, bulks(_words(check)))
        return kind


def counted(reply: Sequence[int], lengths: Sequence[int]) -> list[Counted]:
    """The script's answer, for requests with so many checks each. Raises `StoreUnavailable` if it is none."""
    if len(reply) != 1 + len(lengths) + NUMBERS * sum(lengths):
        raise StoreUnavailable(f"the script answered {len(reply)} numbers for {sum(lengths)} checks")
    now_us, at = reply[0], 1
    answers = []
    for length in lengths:
        admitted, first, at = reply[at] == 1, at + 1, at + 1 + NUMBERS * length
        usages = [_usage(*reply[place : place + NUMBERS]) for place in range(first, at, NUMBERS)]
        answers.append(Counted(admitted, now_us, usages))
    return answers


def _usage(used: int, retry_us: int, reset_us: int) -> Usage:
    return Usage(retry_us == 0, used, None if retry_us < 0 else retry_us, reset_us)


def _key(beginning: str, identifier: str) -> bytes:
    key = (beginning + identifier).encode()
    return b"$%d\r\n%b\r\n" % (len(key), key)


def _words(check: Check) -> Iterator[str | int]:
    terms = check.rule.terms(check.limit)
    yield check.rule.algorithm.value
    yield int(check.shadow)
    yield check.capacity
    # Lua would read 2^53 + 1 as 2^53; twice the capacity fits no more than any other cost above it.
    yield check.cost if check.cost <= check.capacity else 2 * check.capacity
    yield terms.window_us
    yield from terms.refill if check.rule.algorithm is Algorithm.TOKEN_BUCKET else (0, 0)
    yield int(check.instead is not None)
