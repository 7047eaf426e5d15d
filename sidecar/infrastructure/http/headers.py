"""The numbers of a decision as callers see them, in the headers that the configuration asks for."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sidecar.domain.decision import Decision, Reason, RuleState
from sidecar.infrastructure.http.ietf import ietf_headers
from sidecar.infrastructure.http.messages import line
from sidecar.infrastructure.http.rounding import seconds

_ALLOWED = Reason.ALLOWED
_UNAVAILABLE = Reason.STORAGE_UNAVAILABLE
_STATUSES = {Reason.QUOTA_EXCEEDED: 429, Reason.LOCAL_QUOTA_EXCEEDED: 429}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """How answers are written."""

    #: Of a refusal because the store is away.
    unavailable_status: int = 503
    #: X-RateLimit-Reset as seconds since the epoch, not from now.
    reset_epoch: bool = False
    #: X-RateLimit-Limit, -Remaining and -Reset.
    legacy_headers: bool = True
    #: RateLimit and RateLimit-Policy.
    ietf_headers: bool = False
    #: Tells a front Envoy that the 429 is a limiter's, so that it does not try again.
    envoy_ratelimited: bool = False


def rate_limit_lines(decision: Decision, options: ResponseOptions) -> str:
    """Those of the shown rule (`ietf_headers`: of all), and for a refusal what makes it one."""
    lines, state = "", decision.shown
    if state is not None and options.legacy_headers:
        reset_us = state.usage.reset_us + (decision.now_us if options.reset_epoch else 0)
        lines = (
            f"X-RateLimit-Limit: {state.check.capacity}\r\n"
            f"X-RateLimit-Remaining: {state.remaining}\r\n"
            f"X-RateLimit-Reset: {seconds(reset_us)}\r\n"
        )
    if options.ietf_headers:
        lines += "".join([line(name, value) for name, value in ietf_headers(decision).items()])
    if decision.reason is _ALLOWED:  # by the store, as most are
        return lines
    if decision.without_store:
        lines += "X-RateLimit-Degraded: storage_unavailable\r\n"
    if decision.allowed:
        return lines
    if decision.rule_id:  # an id has nothing in it that a header may not have: a rule sees to that
        return f"{lines}X-RateLimit-Rule: {decision.rule_id}\r\nCache-Control: no-store\r\n"
    return lines + "Cache-Control: no-store\r\n"


def retry_after(state: RuleState) -> int | None:
    """Seconds to wait, at least 1; `None` when no waiting helps."""
    retry_us = state.usage.retry_us
    return None if retry_us is None else seconds(retry_us) or 1


def proxy_retry_after(decision: Decision) -> int:
    """A proxy's clients need an integer: where no waiting helps, that of a whole window."""
    state = decision.shown
    if state is None:
        return 1
    return retry_after(state) or state.check.rule.window_seconds or 1


def refusal_status(decision: Decision, options: ResponseOptions) -> int:
    """What a refusal is to callers; a rule may have its own."""
    if decision.refusal and decision.refusal.status:
        return decision.refusal.status
    return reason_status(decision.reason, options)


def reason_status(reason: Reason, options: ResponseOptions) -> int:
    return options.unavailable_status if reason is _UNAVAILABLE else _STATUSES.get(reason, 403)


def reset_at(decision: Decision) -> str | None:
    """The moment of `X-RateLimit-Reset` in UTC; `None` without a rule's numbers."""
    if not (state := decision.shown):
        return None
    moment = seconds(decision.now_us + state.usage.reset_us)
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
