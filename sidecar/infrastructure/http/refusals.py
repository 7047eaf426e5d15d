"""Answers to proxies that hand status, headers and body of a refusal on to their client."""

from sidecar.domain.decision import Decision, Reason
from sidecar.infrastructure.http.headers import (
    ResponseOptions,
    proxy_retry_after,
    rate_limit_headers,
    refusal_status,
)
from sidecar.infrastructure.http.messages import Answer
from sidecar.infrastructure.problem import CONTENT_TYPE, problem

_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_DETAILS = {
    Reason.QUOTA_EXCEEDED: "too many requests",
    Reason.LOCAL_QUOTA_EXCEEDED: "too many requests",
    Reason.BLOCKED: "requests of this kind are blocked",
    Reason.IDENTIFIER_MISSING: "the request does not say who is calling",
    Reason.STORAGE_UNAVAILABLE: "the rate limiter cannot count requests at the moment",
}


def full_answer(decision: Decision, options: ResponseOptions) -> Answer:
    """Allowed is exactly 200 with an empty body; a refusal carries its reason as problem+json."""
    headers = rate_limit_headers(decision, options)
    if decision.allowed:
        return Answer(200, headers)
    if decision.is_quota:
        headers["Retry-After"] = proxy_retry_after(decision)
    status, refusal = refusal_status(decision, options), decision.refusal
    if refusal and refusal.body is not None:
        headers["Content-Type"] = refusal.content_type or "text/plain; charset=utf-8"
        return Answer(status, headers, refusal.body.encode("utf-8", "surrogatepass"))
    headers["Content-Type"] = CONTENT_TYPE
    return Answer(status, headers, _problem(decision, status))


def _problem(decision: Decision, status: int) -> bytes:
    detail = _DETAILS[decision.reason]
    if not decision.is_quota:
        return problem(status, detail)
    return problem(status, detail, type_=_QUOTA_EXCEEDED, **{"violated-policies": decision.violated})
