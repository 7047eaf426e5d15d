"""Envoy's HTTP ext_authz with `path_prefix: /authz` (also Istio and Envoy Gateway).

The request line is the client's own: its method, and its target behind the prefix. Anything but 200 ends
the request at Envoy, which sends status, headers and body of a refusal on to the client; of a 5xx it sends
nothing, and asks `failure_mode_allow` instead.
"""

from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call, line
from sidecar.infrastructure.http.refusals import full_answer
from sidecar.infrastructure.http.sources import Sources

PATH = "/authz"
_RATE_LIMITED = line("X-Envoy-RateLimited", "true")


def read(call: Call, sources: Sources) -> RequestMetadata:
    return sources.request(call, call.method, call.target, call.headers.get("host", ""))


def write(decision: Decision, options: ResponseOptions) -> Answer:
    answer = full_answer(decision, options)
    if answer.status == 429 and options.envoy_ratelimited:
        # A front Envoy that retries 429 leaves this one alone; each of its retries would be charged.
        return Answer(answer.status, answer.lines + _RATE_LIMITED, answer.body)
    return answer
