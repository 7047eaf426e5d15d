"""What the data port serves: the rows that only the document has.

Envoy's path is not among them: what follows it is the client's own target, slashes and all.
"""

from collections.abc import Iterator, Mapping

from sidecar.application.user_rates import MAX_USER
from sidecar.infrastructure.admin.bodies import Decided, Problem, RateCheckBody, RateChecked, RateStatus
from sidecar.infrastructure.admin.table import Body, Operation, Parameter, Reply, Tag
from sidecar.infrastructure.described import EvaluateBody
from sidecar.infrastructure.problem import CONTENT_TYPE

_NUMBERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_DEGRADED = "X-RateLimit-Degraded"
_LIMITS = (*_NUMBERS, _DEGRADED, "RateLimit-Policy", "RateLimit")
_REFUSED = (*_LIMITS, "X-RateLimit-Rule", "Retry-After")
#: Of a refusal because nobody can count.
_UNCOUNTED = (_DEGRADED, "X-RateLimit-Rule")
_USER = Parameter(
    "X-User-Id",
    {"type": "integer", "minimum": 1, "maximum": MAX_USER},
    "Who it is, in ASCII digits.",
    where="header",
    required=True,
)
_ENDPOINT = Parameter(
    "endpoint", {"type": "string", "minLength": 1, "maxLength": 128}, "Any text.", required=True
)

Answers = Mapping[int | str, Reply]
_NO_ACCESS = "No access to this port: `listen.trusted_peers`, `listen.secret`."
_CLOSED = Reply(_NO_ACCESS, Problem, CONTENT_TYPE)
#: Where `listen.apis` leaves it out.
_LEFT_OUT = 404
_OWN = Reply("Refused by a policy with a `response` of its own.", headers=_REFUSED)
_NGINX: Answers = {
    200: Reply("Allowed; no body.", headers=_LIMITS),
    403: Reply(
        f"Refused, with `X-RateLimit-Status` and no body. Without that header: {_NO_ACCESS}",
        headers=(*_REFUSED, "X-RateLimit-Status"),
    ),
}
_FORWARD_AUTH: Answers = {
    200: Reply("Allowed; no body.", headers=_LIMITS),
    403: Reply(f"Blocked, or the identifier is missing. {_NO_ACCESS}", Problem, CONTENT_TYPE, _REFUSED),
    429: Reply("Refused; `violated-policies` names those that did.", Problem, CONTENT_TYPE, _REFUSED),
    "4XX": _OWN,
    503: Reply(
        "The store is away, `on_unavailable` is `deny`; or `response.unavailable_status`.",
        Problem,
        CONTENT_TYPE,
        _UNCOUNTED,
    ),
}


def _check(path: str, proxies: str, answers: Answers, *headers: str) -> Iterator[Operation]:
    """What a proxy asks, for any client and for one that is pinned in its configuration."""
    told = "What the client sent to the proxy. Left out: only policies for everything match."
    for pin, whose in (("", ""), ("/clients/{client_id}", ", for this client")):
        yield Operation(
            "GET",
            pin + path,
            None,
            Tag.DATA,
            f"Decide a request that {proxies} asks about, and count it{whose}; any method does",
            answers,
            errors=(_LEFT_OUT,),
            any_method=True,
            parameters=tuple(Parameter(name, {"type": "string"}, told, "header") for name in headers),
        )


DATA_PORT = (
    Operation(
        "POST",
        "/v1/evaluate",
        None,
        Tag.DATA,
        "Decide a request and count it",
        {
            200: Reply("Allowed.", Decided, headers=_LIMITS),
            403: Reply(f"Blocked. {_NO_ACCESS}", Decided, headers=("X-RateLimit-Rule",), or_problem=True),
            429: Reply("Refused.", Decided, headers=_REFUSED),
            503: Reply(
                "The store is away, `on_unavailable` is `deny`; or `response.unavailable_status`.",
                Decided,
                headers=_UNCOUNTED,
            ),
        },
        errors=(404, 422),
        body=Body(kind=EvaluateBody),
    ),
    Operation(
        "POST",
        "/rate/check",
        None,
        Tag.DATA,
        "Count a request of a user at an endpoint, if it fits",
        {
            200: Reply("It fits.", RateChecked, headers=_LIMITS),
            403: _CLOSED,
            429: Reply("It does not.", RateChecked, headers=_REFUSED),
        },
        errors=(_LEFT_OUT, 422, 503),
        body=Body(kind=RateCheckBody),
        parameters=(_USER,),
    ),
    Operation(
        "GET",
        "/rate/status",
        None,
        Tag.DATA,
        "What a check would answer now",
        {200: Reply("Nothing was counted.", RateStatus, headers=_LIMITS), 403: _CLOSED},
        errors=(400, _LEFT_OUT, 422, 503),
        parameters=(_USER, _ENDPOINT),
    ),
    *_check("/nginx", "NGINX", _NGINX, "X-Original-Method", "X-Original-URI"),
    *_check("/ingress-nginx", "ingress-nginx", _NGINX, "X-Original-Method", "X-Original-URL"),
    *_check(
        "/forward-auth",
        "Traefik, Caddy, APISIX or HAProxy",
        _FORWARD_AUTH,
        "X-Forwarded-Method",
        "X-Forwarded-Uri",
        "X-Forwarded-Host",
    ),
)
