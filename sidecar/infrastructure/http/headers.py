"""The numbers of a decision as callers see them: whole seconds, rounded up once, here.

Up, because waiting that long must be enough; Envoy and most clients read nothing but integers.
"""

from datetime import UTC, datetime

from sidecar.domain.algorithms import SECOND_US
from sidecar.domain.decision import Decision, Reason, RuleState


def seconds(microseconds: int) -> int:
    return -(-microseconds // SECOND_US)


def rate_limit_headers(decision: Decision) -> dict[str, str]:
    """`X-RateLimit-*` of the shown rule, and for a refusal what makes it one."""
    headers: dict[str, str] = {}
    if state := decision.shown:
        headers["X-RateLimit-Limit"] = str(state.check.capacity)
        headers["X-RateLimit-Remaining"] = str(state.remaining)
        headers["X-RateLimit-Reset"] = str(seconds(state.usage.reset_us))
    if decision.allowed:
        return headers
    if decision.rule_id:
        headers["X-RateLimit-Rule"] = decision.rule_id
    headers["Cache-Control"] = "no-store"
    return headers


def retry_after(state: RuleState) -> int | None:
    """Seconds to wait, at least 1; `None` when no waiting helps."""
    retry_us = state.usage.retry_us
    return None if retry_us is None else max(1, seconds(retry_us))


def refusal_status(reason: Reason, unavailable_status: int) -> int:
    match reason:
        case Reason.QUOTA_EXCEEDED:
            return 429
        case Reason.STORAGE_UNAVAILABLE:
            return unavailable_status
        case _:
            return 403


def reset_at(decision: Decision) -> str | None:
    """The moment of `X-RateLimit-Reset` in UTC; `None` without a rule's numbers."""
    if not (state := decision.shown):
        return None
    moment = seconds(decision.now_us + state.usage.reset_us)
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
