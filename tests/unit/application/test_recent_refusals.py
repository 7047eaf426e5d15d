"""Refusals from memory: for what, until when, and with which numbers."""

from dataclasses import replace

import pytest

from sidecar.application import recent_refusals
from sidecar.application.recent_refusals import RecentRefusals
from sidecar.domain.decision import Check, Counted, Decision, Reason, Usage, decide
from tests.decisions import NOW_US, check, rule

SECOND = 1_000_000
OTHER = rule("other")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recent(clock: Clock) -> RecentRefusals:
    return RecentRefusals(clock)


def refuses(retry_us: int | None = 60 * SECOND, reset_us: int = 60 * SECOND) -> Usage:
    return Usage(False, 10, retry_us, reset_us)


def refused(*states: tuple[Check, Usage]) -> Decision:
    """As the store decides."""
    return decide([of for of, _ in states], Counted(False, NOW_US, [usage for _, usage in states]))


def told(recent: RecentRefusals, *states: tuple[Check, Usage]) -> Decision:
    decision = refused(*states)
    recent.remember(decision, recent.before_asking())
    return decision


def test_what_was_refused_is_refused_again_with_the_same_numbers(recent: RecentRefusals) -> None:
    """As long as no time has passed, nothing tells them apart."""
    assert recent.find([check()]) is None
    assert told(recent, (check(), refuses())) == recent.find([check()])


@pytest.mark.parametrize(
    "asked",
    [
        check(identifier="=y"),
        check(client_id="d"),
        check(OTHER),
        check(cost=2),
        check(limit=11),
        check(shadow=True),
        check(instead="~ip=192.0.2.1"),
    ],
    ids=["identifier", "client", "rule", "cost", "limit", "watching", "newcomer"],
)
def test_only_the_same_request_to_the_same_rule_is_refused(recent: RecentRefusals, asked: Check) -> None:
    """For a newcomer to a crowded rule another one is counted; a rule that watches refuses nobody."""
    told(recent, (check(), refuses()))
    assert recent.find([asked]) is None


@pytest.mark.parametrize("of", [check(shadow=True), check(instead="~ip=192.0.2.1")])
def test_what_says_nothing_about_the_next_request_is_not_remembered(
    recent: RecentRefusals, of: Check
) -> None:
    recent.remember(refused((of, refuses()), (check(OTHER), refuses())), recent.before_asking())
    assert recent.find([replace(of, shadow=False, instead=None)]) is None


@pytest.mark.parametrize(
    ("retry_us", "holds", "ends"),
    [(60 * SECOND, 0.999, 1.0), (None, 0.999, 1.0), (SECOND // 4, 0.249, 0.25), (1, 0.0, 0.001)],
)
def test_it_holds_until_the_retry_moment_or_for_a_second(
    recent: RecentRefusals, clock: Clock, retry_us: int | None, holds: float, ends: float
) -> None:
    """Also where no waiting helps."""
    told(recent, (check(), refuses(retry_us)))
    clock.now = 100.0 + holds
    assert recent.find([check()])
    clock.now = 100.0 + ends
    assert recent.find([check()]) is None


def test_its_time_is_counted_from_before_the_asking(recent: RecentRefusals, clock: Clock) -> None:
    """The store may have answered long before the answer was here."""
    asked = recent.before_asking()
    clock.now += 0.4
    recent.remember(refused((check(), refuses(SECOND // 2))), asked)
    assert recent.find([check()])
    clock.now = 100.5
    assert recent.find([check()]) is None


def test_what_is_said_is_counted_from_the_answer(recent: RecentRefusals, clock: Clock) -> None:
    """Whoever waits as long as it says is let in, however long the answer took; `reset_at` stays the same."""
    asked = recent.before_asking()
    clock.now += 0.5
    told_then = refused((check(), refuses(3 * SECOND, 4 * SECOND)))
    recent.remember(told_then, asked)
    clock.now += 0.25
    found = recent.find([check()])
    assert found is not None
    assert found.shown is not None
    assert found.shown.usage == Usage(False, 10, 2_750_000, 3_750_000)
    assert found.now_us + found.shown.usage.reset_us == NOW_US + 4 * SECOND


def test_the_rule_with_the_longest_retry_is_shown_by_its_own_clock(
    recent: RecentRefusals, clock: Clock
) -> None:
    """Rules may be known from different moments."""
    told(recent, (check(), refuses(10 * SECOND)))
    clock.now += 0.5
    told(recent, (check(OTHER), refuses(20 * SECOND)))
    clock.now += 0.25
    found = recent.find([check(), check(OTHER)])
    assert found is not None
    assert found.shown is not None
    assert (found.rule_id, found.violated, found.reason) == ("other", ["r", "other"], Reason.QUOTA_EXCEEDED)
    assert found.now_us == NOW_US + SECOND // 4
    assert found.shown.usage.retry_us == 20 * SECOND - SECOND // 4


def test_one_rule_that_is_known_to_refuse_is_enough(recent: RecentRefusals) -> None:
    """Whatever the others have left: the request is charged to none."""
    told(recent, (check(), refuses()))
    found = recent.find([check(OTHER), check(), check(rule("watching"), shadow=True)])
    assert found is not None
    assert [state.check.rule.id for state in found.states] == ["r"]


def test_of_several_rules_those_that_fit_are_not_remembered(recent: RecentRefusals) -> None:
    told(recent, (check(), refuses()), (check(OTHER), Usage(True, 1, 0, 5)))
    assert recent.find([check(OTHER)]) is None


def test_an_edit_ends_them_all_and_what_is_being_asked_too(recent: RecentRefusals) -> None:
    """The answer may be from before; what is asked after it counts again."""
    told(recent, (check(), refuses()))
    asked = recent.before_asking()
    recent.clear()
    assert recent.find([check()]) is None
    recent.remember(refused((check(), refuses())), asked)
    assert recent.find([check()]) is None
    told(recent, (check(), refuses()))
    assert recent.find([check()])


def test_the_oldest_are_forgotten_of_too_many(
    recent: RecentRefusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was refused by the store again is as new as others."""
    monkeypatch.setattr(recent_refusals, "MAX_REFUSALS", 3)
    for number in (1, 2, 3, 1, 4):
        told(recent, (check(identifier=f"={number}"), refuses()))
    known = [number for number in range(1, 5) if recent.find([check(identifier=f"={number}")])]
    assert known == [1, 3, 4]


def test_a_moment_without_refusals_forgets_them_all(recent: RecentRefusals, clock: Clock) -> None:
    """Who is allowed pays nothing for what was refused long ago."""
    told(recent, (check(), refuses()))
    clock.now += 0.5
    told(recent, (check(identifier="=y"), refuses()))
    clock.now += 0.5
    assert recent.find([check()]) is None
    assert recent.find([check(identifier="=y")])
    clock.now += 0.5
    assert recent.find([check()]) is None
    assert not recent._refusals
