"""Answers to proxies that hand status, headers and body of a refusal on to their client."""

from functools import lru_cache

from sidecar.domain.decision import Decision, Reason
from sidecar.infrastructure.http.headers import (
    ResponseOptions,
    proxy_retry_after,
    rate_limit_lines,
    refusal_status,
)
from sidecar.infrastructure.http.messages import Answer, line
from sidecar.infrastructure.problem import CONTENT_TYPE, problem

_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_DETAILS = {
    Reason.QUOTA_EXCEEDED: "too many requests",
    Reason.LOCAL_QUOTA_EXCEEDED: "too many requests",
    Reason.BLOCKED: "requests of this kind are blocked",
    Reason.IDENTIFIER_MISSING: "the request does not say who is calling",
    Reason.STORAGE_UNAVAILABLE: "the rate limiter cannot count requests at the moment",
}

_PROBLEM_LINE = line("Content-Type", CONTENT_TYPE)


def full_answer(decision: Decision, options: ResponseOptions) -> Answer:
    """Allowed is exactly 200 with an empty body; a refusal carries its reason as problem+json."""
    lines = rate_limit_lines(decision, options)
    if decision.allowed:
        return Answer(200, lines)
    status, refusal, is_quota = refusal_status(decision, options), decision.refusal, decision.is_quota
    if is_quota:
        lines += f"Retry-After: {proxy_retry_after(decision)}\r\n"
    if refusal and refusal.body is not None:
        lines += line("Content-Type", refusal.content_type or "text/plain; charset=utf-8")
        return Answer(status, lines, refusal.body.encode("utf-8", "surrogatepass"))
    violated = tuple(decision.violated) if is_quota else ()
    return Answer(status, lines + _PROBLEM_LINE, _problem(status, decision.reason, violated))


@lru_cache(maxsize=1024)
def _problem(status: int, reason: Reason, violated: tuple[str, ...]) -> bytes:
    """Remembered, since a flood is refused with the same words again and again."""
    if not violated:
        return problem(status, _DETAILS[reason])
    return problem(status, _DETAILS[reason], type_=_QUOTA_EXCEEDED, **{"violated-policies": violated})
