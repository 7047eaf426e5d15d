"""Envoy's HTTP ext_authz with `path_prefix: /authz` (also Istio and Envoy Gateway).

The request line is the client's own: its method, and its target behind the prefix. Anything but 200 ends
the request at Envoy, which sends status, headers and body of a refusal on to the client; of a 5xx it sends
nothing, and asks `failure_mode_allow` instead.
"""

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.headers import rate_limit_headers, refusal_status, retry_after
from sidecar.infrastructure.http.messages import Answer, Call
from sidecar.infrastructure.http.sources import Sources
from sidecar.infrastructure.problem import CONTENT_TYPE, problem

PATH = "/authz"
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_DETAILS = {
    Reason.QUOTA_EXCEEDED: "too many requests",
    Reason.BLOCKED: "requests of this kind are blocked",
    Reason.IDENTIFIER_MISSING: "the request does not say who is calling",
    Reason.STORAGE_UNAVAILABLE: "the rate limiter cannot count requests at the moment",
}


def read(call: Call, sources: Sources) -> RequestMetadata:
    return sources.request(call, call.method, call.target, call.headers.get("host", ""))


def write(decision: Decision, unavailable_status: int) -> Answer:
    """Allowed is exactly 200 with an empty body; a refusal carries its reason as problem+json."""
    headers = rate_limit_headers(decision)
    if decision.allowed:
        return Answer(200, headers)
    status = refusal_status(decision.reason, unavailable_status)
    headers["Content-Type"] = CONTENT_TYPE
    if status != 429:
        return Answer(status, headers, problem(status, _DETAILS[decision.reason]))
    headers["Retry-After"] = str(_retry_after(decision))
    body = problem(
        429, _DETAILS[decision.reason], type_=_QUOTA_EXCEEDED, **{"violated-policies": decision.violated}
    )
    return Answer(429, headers, body)


def _retry_after(decision: Decision) -> int:
    """A proxy's clients need an integer: where no waiting helps, that of a whole window."""
    state = decision.shown
    if state is None:
        return 1
    return retry_after(state) or state.check.rule.window_seconds or 1
