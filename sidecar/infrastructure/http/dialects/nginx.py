"""NGINX's auth_request, and ingress-nginx, which writes the same into other headers.

The subrequest is always a GET of the configured path; what the client asked for is in headers that the
configuration overwrites. NGINX takes 2xx, 401 and 403 for an answer: any other status is an error line, a
500 and a closed connection. So a refusal is a 403 whose `X-RateLimit-Status` says what `error_page` has to
make of it. It has no body: one would cost NGINX its connection to us.
"""

from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.headers import (
    ResponseOptions,
    proxy_retry_after,
    rate_limit_lines,
    refusal_status,
)
from sidecar.infrastructure.http.messages import Answer, Call
from sidecar.infrastructure.http.sources import Sources

PATH = "/nginx"
INGRESS_PATH = "/ingress-nginx"


def read(call: Call, sources: Sources) -> RequestMetadata:
    headers = call.headers
    method, target = headers.get("x-original-method", ""), headers.get("x-original-uri", "")
    return sources.request(call, method, target, headers.get("host", ""))


def read_ingress(call: Call, sources: Sources) -> RequestMetadata:
    """X-Original-URL is the whole URL; `Host` is our own here."""
    headers = call.headers
    host, target = _split(headers.get("x-original-url", ""))
    return sources.request(call, headers.get("x-original-method", ""), target, host)


def write(decision: Decision, options: ResponseOptions) -> Answer:
    lines = rate_limit_lines(decision, options)
    if decision.allowed:
        return Answer(200, lines)
    lines += f"X-RateLimit-Status: {refusal_status(decision, options)}\r\n"
    if decision.is_quota:
        lines += f"Retry-After: {proxy_retry_after(decision)}\r\n"
    return Answer(403, lines)


def _split(url: str) -> tuple[str, str]:
    """Host and target of `scheme://host/target`, the target as it was sent."""
    scheme, found, rest = url.partition("://")
    if not found or "/" in scheme:
        return "", ""
    host, slash, target = rest.partition("/")
    return host, slash + target
