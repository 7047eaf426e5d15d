"""Several rules of one request: all or nothing, shadow rules for themselves, and which numbers are shown."""

from sidecar.domain.algorithms import Algorithm
from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Counted, Decision, Reason, Usage, decide
from sidecar.domain.rule import Rule

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def check(
    rule_id: str, limit: int, *, window: int = 60, cost: int = 1, shadow: bool = False, who: str = "="
) -> Check:
    rule = Rule(
        id=rule_id,
        route="/*",
        identifier_type="none",
        algorithm=Algorithm.SLIDING_WINDOW,
        limit=limit,
        window_seconds=window,
    )
    return Check("c", rule, who, limit, limit, cost, shadow)


def hit(counters: MemoryCounters, *checks: Check, at: int = 0, charge: bool = True) -> Decision:
    return decide(checks, counters.hit(checks, NOW + at * SECOND, charge=charge))


def used(decision: Decision) -> list[int]:
    return [state.usage.used for state in decision.states]


def shown(decision: Decision) -> str | None:
    return decision.shown.check.rule.id if decision.shown else None


def test_a_request_refused_by_one_rule_is_charged_to_none() -> None:
    """Limits of 3 and 10, five requests: the fourth and fifth are refused and the second counter shows 3."""
    counters = MemoryCounters()
    decisions = [hit(counters, check("small", 3), check("large", 10)) for _ in range(5)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False, False]
    assert [used(decision) for decision in decisions] == [[1, 1], [2, 2], [3, 3], [3, 3], [3, 3]]
    assert decisions[-1].violated == ["small"]


def test_the_order_of_the_rules_does_not_change_what_is_charged() -> None:
    """The rule that refuses may come last."""
    counters = MemoryCounters()
    decisions = [hit(counters, check("large", 10), check("small", 3)) for _ in range(5)]
    assert used(decisions[-1]) == [3, 3]


def test_looking_answers_as_a_charge_would_and_leaves_the_counters() -> None:
    """With `charge=False` a full counter refuses, one with room admits, and both stay as they are."""
    counters = MemoryCounters()
    hit(counters, check("a", 2))
    looks = [hit(counters, check("a", 2), charge=False) for _ in range(3)]
    assert [(look.allowed, used(look)) for look in looks] == [(True, [1])] * 3
    hit(counters, check("a", 2))
    assert not hit(counters, check("a", 2), charge=False).allowed


def test_a_shadow_rule_never_refuses_and_is_never_shown() -> None:
    """It is charged while it fits, then reports that it would have refused and stays as it is."""
    counters = MemoryCounters()
    decisions = [hit(counters, check("real", 10), check("trial", 2, shadow=True)) for _ in range(4)]
    assert [decision.allowed for decision in decisions] == [True] * 4
    assert [used(decision) for decision in decisions] == [[1, 1], [2, 2], [3, 2], [4, 2]]
    assert [decision.states[1].usage.fits for decision in decisions] == [True, True, False, False]
    assert {shown(decision) for decision in decisions} == {"real"}
    assert decisions[-1].violated == ["real"]


def test_a_shadow_rule_is_charged_only_if_the_enforcing_ones_admit() -> None:
    """A refused request is not counted, in a shadow rule neither."""
    counters = MemoryCounters()
    for _ in range(3):
        decision = hit(counters, check("trial", 10, shadow=True), check("real", 1))
    assert (decision.allowed, used(decision), shown(decision)) == (False, [1, 1], "real")


def test_each_shadow_rule_is_charged_for_itself() -> None:
    """One that is full does not keep another from counting."""
    counters = MemoryCounters()
    for _ in range(3):
        decision = hit(counters, check("full", 1, shadow=True), check("roomy", 10, shadow=True))
    assert used(decision) == [1, 3]


def test_shadow_rules_alone_allow_without_numbers() -> None:
    """There is no enforcing rule whose numbers could be shown."""
    decision = hit(MemoryCounters(), check("trial", 1, shadow=True, cost=5))
    assert (decision.allowed, decision.reason, decision.shown) == (True, Reason.ALLOWED, None)
    assert decision.rule_id is None


def test_a_refusal_shows_the_refusing_rule_with_the_longest_retry() -> None:
    """A rule that would admit is not shown, however long its reset; never fitting is longest."""
    counters = MemoryCounters()
    checks = [check("minute", 1), check("hour", 1, window=3600), check("day", 9, window=86400)]
    hit(counters, *checks)
    refused = hit(counters, *checks, at=10)
    assert (shown(refused), refused.reason, refused.violated) == (
        "hour",
        Reason.QUOTA_EXCEEDED,
        ["minute", "hour"],
    )
    never = hit(counters, *checks, check("never", 1, cost=2), at=10)
    assert (shown(never), never.shown and never.shown.usage.retry_us) == ("never", None)


def test_waiting_the_shown_retry_lets_the_same_request_pass() -> None:
    """The longest retry is the moment at which every rule admits."""
    counters = MemoryCounters()
    checks = [check("minute", 2), check("hour", 3, window=3600)]
    for at in (0, 30, 90):
        assert hit(counters, *checks, at=at).allowed
    refused = hit(counters, *checks, at=100)
    assert refused.shown is not None
    assert refused.shown.usage.retry_us == 3500 * SECOND
    assert not hit(counters, *checks, at=3599).allowed
    assert hit(counters, *checks, at=3600).allowed


def fold(*states: tuple[Check, Usage]) -> Decision:
    return decide([c for c, _ in states], Counted(True, NOW, [usage for _, usage in states]))


def test_an_allowance_shows_the_rule_with_the_fewest_such_requests_left() -> None:
    """Requests, not units: 20 units at 10 each are fewer than 3 at 1 each."""
    costly = (check("costly", 100, cost=10), Usage(True, 80, 0, 5))
    cheap = (check("cheap", 10), Usage(True, 7, 0, 90))
    assert shown(fold(cheap, costly)) == "costly"


def test_equal_rules_show_the_longer_reset_and_then_the_first_id() -> None:
    """The order in which the rules came plays no part."""
    soon, late = (check("a", 5), Usage(True, 3, 0, 10)), (check("z", 5), Usage(True, 3, 0, 20))
    same = (check("m", 5), Usage(True, 3, 0, 20))
    assert shown(fold(soon, late)) == shown(fold(late, soon)) == "z"
    assert shown(fold(late, same)) == shown(fold(same, late)) == "m"


def test_remaining_is_never_negative() -> None:
    """A limit lowered in use leaves nothing, not less."""
    decision = fold((check("a", 5), Usage(True, 9, 0, 10)))
    assert decision.shown is not None
    assert (decision.shown.remaining, decision.shown.requests_left) == (0, 0)
