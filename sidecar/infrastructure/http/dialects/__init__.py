"""One module for each way of asking: `read` turns the call into a request, `write` a decision into an answer.

Both are plain functions that know nothing of the web framework. `PROXIES` has those of proxies, by the path
that alone says which one a request speaks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.dialects import envoy, forward_auth, nginx
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call
from sidecar.infrastructure.http.sources import Sources


@dataclass(frozen=True, slots=True)
class Dialect:
    """`name` is what the configuration calls it."""

    name: str
    read: Callable[[Call, Sources], RequestMetadata]
    write: Callable[[Decision, ResponseOptions], Answer]


ENVOY = Dialect("envoy", envoy.read, envoy.write)
#: Those at a fixed path; Envoy's is followed by the client's own target.
PROXIES = {
    nginx.PATH: Dialect("nginx", nginx.read, nginx.write),
    nginx.INGRESS_PATH: Dialect("ingress-nginx", nginx.read_ingress, nginx.write),
    forward_auth.PATH: Dialect("forward-auth", forward_auth.read, forward_auth.write),
}
