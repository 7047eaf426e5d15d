"""Microseconds become whole seconds once, upwards."""

from datetime import UTC, datetime

import pytest

from sidecar.domain.decision import Decision, Reason, RuleState, Usage
from sidecar.domain.refusal import Refusal
from sidecar.infrastructure.http.headers import (
    ResponseOptions,
    rate_limit_lines,
    reason_status,
    refusal_status,
    reset_at,
    retry_after,
)
from sidecar.infrastructure.http.messages import Answer
from sidecar.infrastructure.http.rounding import seconds
from tests.decisions import NOW_US, allowed, check, refused, rule, without_numbers

YEAR_US = 365 * 24 * 3600 * 10**6


def rate_limit_headers(decision: Decision, options: ResponseOptions) -> dict[str, str]:
    return Answer(200, rate_limit_lines(decision, options)).headers


@pytest.mark.parametrize(
    ("microseconds", "rounded"),
    [
        (0, 0),
        (1, 1),
        (999_999, 1),
        (1_000_000, 1),
        (1_000_001, 2),
        (60_000_000, 60),
        (YEAR_US, 31_536_000),
        (NOW_US + 1, 1_705_312_801),
    ],
)
def test_a_part_of_a_second_is_a_whole_one(microseconds: int, rounded: int) -> None:
    """Waiting as long as is said must be enough."""
    assert seconds(microseconds) == rounded


@pytest.mark.parametrize(
    ("retry_us", "wait"),
    [(1, 1), (0, 1), (999_999, 1), (1_000_001, 2), (23_000_000, 23), (YEAR_US, 31_536_000), (None, None)],
)
def test_a_wait_is_at_least_a_second_and_none_where_no_waiting_helps(
    retry_us: int | None, wait: int | None
) -> None:
    """Zero would be an invitation to a busy loop."""
    assert retry_after(RuleState(check(), Usage(False, 10, retry_us, 5))) == wait


@pytest.mark.parametrize(
    ("used", "reset_us", "remaining", "reset"),
    [
        (0, 0, "10", "0"),
        (1, 1, "9", "1"),
        (10, 60_000_000, "0", "60"),
        (25, 60_000_001, "0", "61"),
    ],
)
def test_remaining_is_never_negative_and_reset_is_zero_when_nothing_is_used(
    used: int, reset_us: int, remaining: str, reset: str
) -> None:
    """A lowered limit leaves more used than there is room for."""
    headers = rate_limit_headers(allowed(used=used, reset_us=reset_us), ResponseOptions())
    assert headers == {
        "X-RateLimit-Limit": "10",
        "X-RateLimit-Remaining": remaining,
        "X-RateLimit-Reset": reset,
    }


def test_the_limit_of_a_token_bucket_is_what_it_holds() -> None:
    """Limit and remaining are of the same kind, else remaining could be more than limit."""
    of = check(capacity=50)
    assert rate_limit_headers(allowed(used=1, of=of), ResponseOptions())["X-RateLimit-Limit"] == "50"
    assert rate_limit_headers(allowed(used=1, of=of), ResponseOptions())["X-RateLimit-Remaining"] == "49"


@pytest.mark.parametrize(
    ("now_us", "reset_us", "moment"),
    [
        (NOW_US, 60_000_000, "2024-01-15T10:01:00Z"),
        (NOW_US, 59_000_001, "2024-01-15T10:01:00Z"),
        (NOW_US, 1, "2024-01-15T10:00:01Z"),
        (NOW_US, 0, "2024-01-15T10:00:00Z"),
        # Rounded once: the sum, not its parts.
        (NOW_US + 400_000, 59_600_000, "2024-01-15T10:01:00Z"),
        (NOW_US + 400_000, 59_600_001, "2024-01-15T10:01:01Z"),
        (NOW_US, YEAR_US, "2025-01-14T10:00:00Z"),
        (0, 1, "1970-01-01T00:00:01Z"),
    ],
)
def test_the_moment_of_the_reset_is_in_utc(now_us: int, reset_us: int, moment: str) -> None:
    """By the store's clock, which is passed in."""
    assert reset_at(allowed(reset_us=reset_us, now_us=now_us)) == moment
    assert reset_at(refused(reset_us=reset_us, now_us=now_us)) == moment


def test_there_is_no_moment_without_numbers() -> None:
    """None is invented for a request that no rule counted."""
    assert reset_at(without_numbers(Reason.NO_POLICY, allow=True)) is None
    assert rate_limit_headers(without_numbers(Reason.NO_POLICY, allow=True), ResponseOptions()) == {}


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_its_status(reason: Reason) -> None:
    """A quota is 429, the store's absence what the configuration says, everything else a plain no."""
    expected = {Reason.STORAGE_UNAVAILABLE: 599}
    expected |= {Reason.QUOTA_EXCEEDED: 429, Reason.LOCAL_QUOTA_EXCEEDED: 429}
    assert reason_status(reason, ResponseOptions(unavailable_status=599)) == expected.get(reason, 403)


@pytest.mark.parametrize(
    ("now_us", "reset_us", "moment"),
    [
        (NOW_US, 60_000_000, "1705312860"),
        # Rounded once, as `reset_at` is.
        (NOW_US + 400_000, 59_600_000, "1705312860"),
        (NOW_US + 400_000, 59_600_001, "1705312861"),
        # Where nothing is used: now.
        (NOW_US, 0, "1705312800"),
    ],
)
def test_the_reset_can_be_a_moment(now_us: int, reset_us: int, moment: str) -> None:
    """Seconds since 1970, for clients that expect those; of a refusal too."""
    epoch = ResponseOptions(reset_epoch=True)
    for decision in (allowed(now_us=now_us, reset_us=reset_us), refused(now_us=now_us, reset_us=reset_us)):
        assert rate_limit_headers(decision, epoch)["X-RateLimit-Reset"] == moment
        at = datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert reset_at(decision) == at


def test_the_legacy_headers_can_be_left_out() -> None:
    """A refusal still names its rule."""
    options = ResponseOptions(legacy_headers=False)
    assert rate_limit_headers(allowed(), options) == {}
    assert rate_limit_headers(refused(), options) == {"X-RateLimit-Rule": "r", "Cache-Control": "no-store"}


def test_the_headers_of_the_draft_come_beside_the_others() -> None:
    """Off unset, since a popular parser reads nothing else where they are."""
    assert "RateLimit" not in rate_limit_headers(allowed(), ResponseOptions())
    both = rate_limit_headers(allowed(), ResponseOptions(ietf_headers=True))
    assert both["RateLimit-Policy"] == '"r";q=10;w=60'
    assert both["X-RateLimit-Remaining"] == "9"


@pytest.mark.parametrize(("status", "own"), [(None, 429), (418, 418)])
def test_a_rule_may_have_its_own_status(status: int | None, own: int) -> None:
    """For its refusals, not for the store's absence."""
    decision = refused(of=check(rule(response=Refusal(status=status))))
    assert refusal_status(decision, ResponseOptions()) == own
    away = without_numbers(Reason.STORAGE_UNAVAILABLE, allow=False)
    assert refusal_status(away, ResponseOptions(unavailable_status=500)) == 500
