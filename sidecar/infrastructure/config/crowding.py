"""How many counting rules one request can meet: a call to the store carries a bounded number of checks.

Every rule is tried with an example path of its own, so the most crowded request through any rule's route is
found. Rules are looked up by text, not compared with each other: a client may have ten thousand.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sidecar.domain.route import RouteKind, RoutePattern
from sidecar.domain.rule import Mode, Rule
from sidecar.domain.ruleset import MAX_CHECKS


@dataclass(frozen=True, slots=True)
class Crowd:
    """The request that meets most rules."""

    rules: int
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class _Entry:
    rule: Rule
    pattern: RoutePattern
    methods: frozenset[str] | None

    @property
    def specificity(self) -> tuple[tuple[int, int], bool]:
        return self.pattern.specificity, self.methods is not None


def most_crowded(rules: Iterable[Rule]) -> Crowd | None:
    """The fullest request, or `None` where there are too few rules for a crowd."""
    entries = [_Entry(rule, RoutePattern.parse(rule.route), rule.methods) for rule in rules]
    if sum(entry.rule.counts for entry in entries) <= MAX_CHECKS:
        return None
    routes = _Routes(entries)
    crowds = [_fullest(path, list(routes.matching(path))) for path in {_example(e.pattern) for e in entries}]
    return max(crowds, key=lambda crowd: (crowd.rules, crowd.path))


def _fullest(path: str, matching: list[_Entry]) -> Crowd:
    methods = {method for entry in matching for method in entry.methods or ("GET",)}
    return max((_crowd(method, path, matching) for method in sorted(methods)), key=lambda crowd: crowd.rules)


def _crowd(method: str, path: str, matching: list[_Entry]) -> Crowd:
    met = [entry for entry in matching if entry.methods is None or method in entry.methods]
    # A final rule of mode shadow leaves out other shadow rules only: it does not count here.
    finals = [entry.specificity for entry in met if entry.rule.final and entry.rule.mode is not Mode.SHADOW]
    least = max(finals, default=((0, 0), False))
    return Crowd(sum(e.rule.counts and e.specificity >= least for e in met), method, path)


def _example(pattern: RoutePattern) -> str:
    segments = ["x" if segment is None else segment for segment in pattern.segments]
    return "/" + "/".join([*segments, *([pattern.partial] if pattern.partial else [])])


def _split(path: str) -> list[str]:
    return path[1:].split("/")


class _Routes:
    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._by_text: dict[str, list[_Entry]] = defaultdict(list)
        #: Number of segments and places of the literal ones → those literals → rules (`/users/{id}/posts`).
        self._by_shape: dict[tuple[int, tuple[int, ...]], dict[tuple[str, ...], list[_Entry]]] = defaultdict(
            dict
        )
        for entry in entries:
            if entry.pattern.kind is RouteKind.SEGMENTS:
                self._add_segments(entry)
            else:
                self._by_text[entry.pattern.text].append(entry)

    def _add_segments(self, entry: _Entry) -> None:
        literal = {n: segment for n, segment in enumerate(entry.pattern.segments) if segment is not None}
        shape = len(entry.pattern.segments), tuple(literal)
        self._by_shape[shape].setdefault(tuple(literal.values()), []).append(entry)

    def matching(self, path: str) -> Iterator[_Entry]:
        yield from self._by_text.get(path, ())
        beginnings = {path[:length] for length in range(len(path) + 1)} | {f"{path}/", "/"}
        for beginning in beginnings:
            yield from self._by_text.get(f"{beginning}*", ())
        segments = _split(path)
        for (length, places), rules in self._by_shape.items():
            if length == len(segments):
                yield from rules.get(tuple(segments[place] for place in places), ())
