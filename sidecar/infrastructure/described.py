"""A request described in JSON: the bodies of `POST /v1/evaluate` and `POST /v1/explain`."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from sidecar.domain.address import canonical_address
from sidecar.domain.algorithms import MAX_INTEGER
from sidecar.domain.errors import InvalidValue
from sidecar.domain.request import RequestMetadata, canonical_host
from sidecar.domain.rule import ID_PATTERN
from sidecar.infrastructure.validation import Strict

_REQUIRED: dict[str, tuple[str, ...]] = {
    "none": (),
    "session_id": ("session_id",),
    "ip_user_agent": ("ip", "user_agent"),
    "ip": ("ip",),
    "user_id": ("user_id",),
}

Text = Annotated[str, StringConstraints(max_length=65536)]
ClientId = Annotated[str, StringConstraints(pattern=rf"^{ID_PATTERN.pattern}$")]
Method = Annotated[str, StringConstraints(min_length=1, max_length=64)]


def _requirements() -> dict[str, Any]:
    """As JSON Schema has them."""
    present = {"type": "string", "minLength": 1}
    return {
        "allOf": [
            {
                "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
                "then": {"properties": dict.fromkeys(names, present), "required": list(names)},
            }
            for kind, names in _REQUIRED.items()
            if names
        ]
    }


class IdentifierBody(Strict):
    """Who is calling; `type` says which field is required, each rule takes what it needs."""

    model_config = ConfigDict(json_schema_extra=_requirements())

    type: Literal["none", "session_id", "ip_user_agent", "ip", "user_id"]
    session_id: Text | None = None
    ip: Text | None = None
    user_agent: Text | None = None
    user_id: Text | None = None

    @model_validator(mode="after")
    def _has_what_its_type_requires(self) -> "IdentifierBody":
        missing = [name for name in _REQUIRED[self.type] if not getattr(self, name)]
        problems = [(name, f"is required for the type {self.type}") for name in missing]
        if self.ip and not canonical_address(self.ip):
            problems.append(("ip", "expected an IPv4 or IPv6 address"))
        if problems:
            raise InvalidValue(problems)
        return self


class DescribedBody(Strict):
    """A request as `POST /v1/explain` takes it: the client may be found by host, nobody need be calling."""

    client_id: ClientId | None = None
    route: Annotated[str, StringConstraints(min_length=1, max_length=65536)]
    method: Method = "GET"
    identifier: IdentifierBody = IdentifierBody(type="none")
    host: Text = ""
    headers: dict[str, Text] = Field(default_factory=dict, max_length=256)
    cost: Annotated[int, Field(ge=0, le=MAX_INTEGER)] = 1


class EvaluateBody(DescribedBody):
    """The same where it counts: who asks has to say everything."""

    client_id: ClientId
    method: Method
    identifier: IdentifierBody


def described_request(asked: DescribedBody, request_id: str) -> RequestMetadata:
    who = asked.identifier
    return RequestMetadata(
        method=asked.method,
        target=asked.route,
        host=canonical_host(asked.host),
        client_id=asked.client_id,
        address=canonical_address(who.ip) if who.ip else None,
        has_address=bool(who.ip),
        session_id=who.session_id or None,
        user_id=who.user_id or None,
        user_agent=who.user_agent or None,
        headers={name.lower(): value for name, value in asked.headers.items()},
        cost=asked.cost,
        request_id=request_id,
    )
