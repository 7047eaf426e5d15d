"""Forward authentication as Traefik, Caddy, APISIX and our HAProxy action speak it.

They ask at a fixed path, and say in `X-Forwarded-Method`, `-Uri` and `-Host` what the client asked for; those
they overwrite, whatever the client sent. Traefik and APISIX hand any refusal on as it is; a query that the
proxy appended to our path (Caddy does) is the client's, and is not read.
"""

from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call
from sidecar.infrastructure.http.refusals import full_answer
from sidecar.infrastructure.http.sources import Sources

PATH = "/forward-auth"


def read(call: Call, sources: Sources) -> RequestMetadata:
    headers = call.headers
    return sources.request(
        call,
        headers.get("x-forwarded-method", ""),
        headers.get("x-forwarded-uri", ""),
        headers.get("x-forwarded-host", ""),
    )


def write(decision: Decision, options: ResponseOptions) -> Answer:
    return full_answer(decision, options)
