"""Decisions without the store: by each rule's own word, without numbers."""

from dataclasses import dataclass, field

import pytest

from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.rule import OnUnavailable
from tests.decisions import NOW_US, check, rule

ALLOW, DENY, LOCAL = OnUnavailable


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


@dataclass
class Local:
    """A `WithoutStore` whose rules are `local` unless they say otherwise."""

    without_store: WithoutStore = field(default_factory=lambda: WithoutStore(LocalCounters(lambda: NOW_US)))

    def __post_init__(self) -> None:
        self.without_store.default = LOCAL

    def decide(self, *checks: Check, charge: bool = True) -> Decision:
        return self.without_store.decide(checks, charge=charge)


def test_a_local_rule_refuses_when_its_share_is_used_up() -> None:
    """With the numbers of this process; what it allows has none."""
    local, one = Local(), check(rule(limit=2))
    passed = [local.decide(one) for _ in range(2)]
    assert passed == [Decision(True, Reason.STORAGE_UNAVAILABLE, "c")] * 2
    refused = local.decide(one)
    assert (refused.allowed, refused.reason) == (False, Reason.LOCAL_QUOTA_EXCEEDED)
    assert (refused.client_id, refused.rule_id, refused.violated) == ("c", "r", ["r"])
    assert (refused.without_store, refused.is_quota) == (True, True)
    assert refused.shown is not None
    assert (refused.shown.remaining, refused.shown.usage.used) == (0, 2)
    assert (refused.shown.usage.retry_us or 0) > 0


@pytest.mark.parametrize(
    ("words", "reason", "rule_id"),
    [
        ([LOCAL, DENY], Reason.STORAGE_UNAVAILABLE, "r1"),
        ([DENY, LOCAL], Reason.STORAGE_UNAVAILABLE, "r0"),
        ([LOCAL, ALLOW], Reason.LOCAL_QUOTA_EXCEEDED, "r0"),
        ([ALLOW, LOCAL], Reason.LOCAL_QUOTA_EXCEEDED, "r1"),
        ([ALLOW, None], Reason.LOCAL_QUOTA_EXCEEDED, "r1"),
        ([ALLOW, LOCAL, DENY], Reason.STORAGE_UNAVAILABLE, "r2"),
    ],
)
def test_any_denial_wins_and_then_a_local_refusal(
    words: list[OnUnavailable | None], reason: Reason, rule_id: str
) -> None:
    """Once the shares of all local rules are used up."""
    local = Local()
    checks = [check(rule(f"r{n}", limit=1, on_unavailable=word)) for n, word in enumerate(words)]
    for one in checks:
        if one.rule.on_unavailable in (None, LOCAL):
            assert local.decide(one).allowed
    decision = local.decide(*checks)
    assert (decision.allowed, decision.reason, decision.rule_id) == (False, reason, rule_id)


def test_a_denied_request_is_charged_to_no_local_rule() -> None:
    local, one = Local(), check(rule(limit=1))
    for _ in range(3):
        assert not local.decide(one, check(rule("no", on_unavailable=DENY))).allowed
    assert local.decide(one).allowed


def test_local_rules_are_charged_all_or_none() -> None:
    """As they are by the store: what one refuses uses up nothing of another."""
    local, tight, wide = Local(), check(rule("tight", limit=1)), check(rule("wide", limit=3))
    assert local.decide(tight, wide).allowed
    assert [local.decide(tight, wide).rule_id for _ in range(3)] == ["tight"] * 3
    assert [local.decide(wide).allowed for _ in range(3)] == [True, True, False]


def test_a_rule_that_allows_is_not_counted_beside_a_local_one() -> None:
    """However often it is met."""
    local = Local()
    allowing, own = check(rule("a", limit=1, on_unavailable=ALLOW)), check(rule("b", limit=5))
    assert [local.decide(allowing, own).allowed for _ in range(6)] == [True] * 5 + [False]


def test_a_cost_of_nothing_charges_nothing() -> None:
    """It hears what a request would now."""
    local, one = Local(), check(rule(limit=1))
    assert [local.decide(one, charge=False).allowed for _ in range(3)] == [True] * 3
    assert local.decide(one).allowed
    assert local.decide(one, charge=False).reason is Reason.LOCAL_QUOTA_EXCEEDED


def test_a_local_rule_that_only_watches_is_not_counted() -> None:
    """And refuses nothing, alone or beside others."""
    local, watching = Local(), check(rule("w", limit=1), shadow=True)
    assert all(local.decide(watching).allowed for _ in range(3))
    assert [local.decide(watching, check(rule(limit=2))).allowed for _ in range(3)] == [True, True, False]


def test_without_knowing_the_rules_there_is_nothing_to_count_locally() -> None:
    assert Local().decide() == Decision(True, Reason.STORAGE_UNAVAILABLE)


def test_of_several_local_refusals_the_one_of_the_longest_wait_is_shown() -> None:
    local = Local()
    short, long = check(rule("short", limit=1, window_seconds=5)), check(rule("long", limit=1))
    assert local.decide(short, long).allowed
    refused = local.decide(short, long)
    assert (refused.rule_id, sorted(refused.violated)) == ("long", ["long", "short"])
