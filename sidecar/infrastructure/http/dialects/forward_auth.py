"""Forward authentication as Traefik, Caddy, APISIX and our HAProxy action speak it.

They ask at a fixed path, and say in `X-Forwarded-Method`, `-Uri` and `-Host` what the client asked for; those
they overwrite, whatever the client sent. The target is as it came: Caddy does not take the scheme and host
off it that a client may write there, though the application gets it without. Traefik and Caddy hand any
refusal on as it is. A query that the proxy appended to our path (Caddy does) is the client's, and not read.
"""

from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call, origin_form
from sidecar.infrastructure.http.refusals import full_answer
from sidecar.infrastructure.http.sources import Sources

PATH = "/forward-auth"


def read(call: Call, sources: Sources) -> RequestMetadata:
    headers = call.headers
    return sources.request(
        call,
        headers.get("x-forwarded-method", ""),
        origin_form(headers.get("x-forwarded-uri", "")),
        headers.get("x-forwarded-host", ""),
    )


def write(decision: Decision, options: ResponseOptions) -> Answer:
    return full_answer(decision, options)
