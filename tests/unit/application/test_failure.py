"""Decisions without the store: by each rule's own word, without numbers."""

import pytest

from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.rule import OnUnavailable
from tests.decisions import check, rule

ALLOW, DENY = OnUnavailable.ALLOW, OnUnavailable.DENY


def decide_without_store(checks: list[Check], default: OnUnavailable) -> Decision:
    without_store = WithoutStore(LocalCounters())
    without_store.default = default
    return without_store.decide(checks)


@pytest.mark.parametrize(
    ("own", "default", "allowed", "rule_id"),
    [
        ([None], ALLOW, True, None),
        ([None], DENY, False, "r0"),
        ([ALLOW], DENY, True, None),
        ([DENY], ALLOW, False, "r0"),
        ([ALLOW, ALLOW], DENY, True, None),
        ([ALLOW, DENY], ALLOW, False, "r1"),
        ([ALLOW, None], DENY, False, "r1"),
        ([None, ALLOW], ALLOW, True, None),
        ([DENY, DENY], ALLOW, False, "r0"),
    ],
)
def test_one_rule_that_denies_is_enough(
    own: list[OnUnavailable | None], default: OnUnavailable, allowed: bool, rule_id: str | None
) -> None:
    """A rule's own word stands above the default; the first that denies is named."""
    checks = [check(rule(f"r{n}", on_unavailable=word)) for n, word in enumerate(own)]
    decision = decide_without_store(checks, default)
    assert (decision.allowed, decision.rule_id) == (allowed, rule_id)
    assert (decision.reason, decision.client_id) == (Reason.STORAGE_UNAVAILABLE, "c")


@pytest.mark.parametrize(("default", "allowed"), [(ALLOW, True), (DENY, False)])
def test_without_knowing_the_rules_the_default_holds(default: OnUnavailable, allowed: bool) -> None:
    """While the store has not said yet which clients there are, nobody's own word is known."""
    decision = decide_without_store([], default)
    assert decision == Decision(allowed, Reason.STORAGE_UNAVAILABLE)


def test_no_numbers_are_invented() -> None:
    """Nothing was counted, so there is nothing to show."""
    decision = decide_without_store([check(rule(on_unavailable=DENY))], ALLOW)
    assert (decision.shown, decision.states, decision.now_us) == (None, (), 0)


@pytest.mark.parametrize("default", [ALLOW, DENY])
def test_a_rule_that_only_watches_refuses_nothing(default: OnUnavailable) -> None:
    """Neither by its own word nor by the default."""
    watching = [check(rule(on_unavailable=DENY), shadow=True), check(rule("r2"), shadow=True)]
    assert decide_without_store(watching, default).allowed
