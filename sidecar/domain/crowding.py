"""How many counting rules one request can meet: a call to the store carries a bounded number of checks.

Every rule is tried with an example path of its own, so the most crowded request through any rule's route is
found.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.domain.client_rules import MAX_CHECKS
from sidecar.domain.route import RoutePattern
from sidecar.domain.route_index import RouteIndex
from sidecar.domain.rule import Mode, Rule


@dataclass(frozen=True, slots=True)
class _Entry:
    rule: Rule
    pattern: RoutePattern
    methods: frozenset[str] | None

    @property
    def specificity(self) -> tuple[tuple[int, int], bool]:
        return self.pattern.specificity, self.methods is not None


def too_crowded(rules: Iterable[Rule]) -> str | None:
    """What is wrong where one request could meet more counting rules than one call carries."""
    entries = [_Entry(rule, RoutePattern.parse(rule.route), rule.methods) for rule in rules]
    if sum(entry.rule.counts for entry in entries) <= MAX_CHECKS:
        return None
    index = RouteIndex(entries)
    crowds = [_fullest(path, index.find(path)) for path in sorted({_example(e.pattern) for e in entries})]
    most, method, path = max(crowds)
    if most <= MAX_CHECKS:
        return None
    return f"{most} rules apply to {method} {path}; expected at most {MAX_CHECKS} for one request"


def _fullest(path: str, matching: list[_Entry]) -> tuple[int, str, str]:
    methods = {method for entry in matching for method in entry.methods or ("GET",)}
    return max((_met(method, matching), method, path) for method in methods)


def _met(method: str, matching: list[_Entry]) -> int:
    met = [entry for entry in matching if entry.methods is None or method in entry.methods]
    # A final rule of mode shadow leaves out other shadow rules only: it does not count here.
    finals = [entry.specificity for entry in met if entry.rule.final and entry.rule.mode is not Mode.SHADOW]
    least = max(finals, default=((0, 0), False))
    return sum(entry.rule.counts and entry.specificity >= least for entry in met)


def _example(pattern: RoutePattern) -> str:
    segments = ["x" if segment is None else segment for segment in pattern.segments]
    return "/" + "/".join([*segments, *([pattern.partial] if pattern.partial else [])])
