"""What the data port serves beside the paths of proxies: the rows that only the document has."""

from sidecar.application.user_rates import MAX_USER
from sidecar.infrastructure.admin.bodies import Decided, RateCheckBody, RateChecked, RateStatus
from sidecar.infrastructure.admin.table import Body, Operation, Parameter, Reply, Tag
from sidecar.infrastructure.described import EvaluateBody

_LIMITS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_REFUSED = (*_LIMITS, "X-RateLimit-Rule", "Retry-After")
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

DATA_PORT = (
    Operation(
        "POST",
        "/v1/evaluate",
        None,
        Tag.DATA,
        "Decide a request and count it",
        {
            200: Reply("Allowed.", Decided, headers=_LIMITS),
            403: Reply("Blocked.", Decided, headers=("X-RateLimit-Rule",)),
            429: Reply("Refused.", Decided, headers=_REFUSED),
            503: Reply(
                "The store is away, `on_unavailable` is `deny`; or `response.unavailable_status`.",
                Decided,
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
            429: Reply("It does not.", RateChecked, headers=_REFUSED),
        },
        errors=(422, 503),
        body=Body(kind=RateCheckBody),
        parameters=(_USER,),
    ),
    Operation(
        "GET",
        "/rate/status",
        None,
        Tag.DATA,
        "What a check would answer now",
        {200: Reply("Nothing was counted.", RateStatus, headers=_LIMITS)},
        errors=(400, 422, 503),
        parameters=(_USER, _ENDPOINT),
    ),
)
