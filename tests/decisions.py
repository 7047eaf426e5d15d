"""Decisions for tests of what is made of them, with the numbers that a test says and sensible others."""

from typing import Any

from sidecar.domain.decision import Check, Counted, Decision, Reason, Usage, decide
from sidecar.domain.rule import Rule

#: 2024-01-15T10:00:00Z, the day of the API's examples.
NOW_US = 1_705_312_800_000_000


def rule(rule_id: str = "r", **fields: Any) -> Rule:
    counted = {"route": "/*", "identifier_type": "none", "limit": 10, "window_seconds": 60}
    return Rule(**{"id": rule_id, **counted, **fields})


def check(of: Rule | None = None, **fields: Any) -> Check:
    of = of or rule()
    terms = of.terms()
    made = {"identifier": "=x", "limit": terms.limit, "capacity": terms.capacity, "cost": of.cost}
    return Check(**{"client_id": "c", "rule": of, **made, **fields})


def allowed(
    used: int = 1, reset_us: int = 60_000_000, now_us: int = NOW_US, of: Check | None = None
) -> Decision:
    return decide([of or check()], Counted(True, now_us, [Usage(True, used, 0, reset_us)]))


def refused(
    retry_us: int | None = 23_000_000,
    reset_us: int = 23_000_000,
    now_us: int = NOW_US,
    of: Check | None = None,
) -> Decision:
    of = of or check()
    return decide([of], Counted(False, now_us, [Usage(False, of.capacity, retry_us, reset_us)]))


def without_numbers(reason: Reason, *, allow: bool, rule_id: str | None = None) -> Decision:
    return Decision(allow, reason, "c", rule_id)
