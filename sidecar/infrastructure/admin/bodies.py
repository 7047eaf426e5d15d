"""The bodies that the admin port writes, as types: the document's schemas are made from them.

Clients and policies are the domain's own types; what an answer adds to them stands here.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from sidecar.application.known_clients import Source
from sidecar.application.usage import IdentifierCount
from sidecar.domain.decision import Reason
from sidecar.domain.rule import Client, Enforcement, Mode, Rule
from sidecar.domain.ruleset import FoundBy

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClient(Client):
    """A client as it is in force, where it comes from and since when."""

    created_at: Moment
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRule(Rule):
    """A policy and its units, in use and remaining: for everyone, or for `?identifier=`, else null."""

    current_count: Count | None
    remaining: Count | None


class ClientPage(BaseModel):
    """Some of the clients, by id; `next` goes into `?after=`, null at the end."""

    clients: list[ShownClient]
    next: str | None


class PolicyPage(BaseModel):
    """Some of the policies, in their order; `next` goes into `?after=`, null at the end."""

    policies: list[Rule]
    next: str | None


class State(BaseModel):
    """Every policy of a client with its count."""

    client_id: str
    rules: list[CountedRule]


class IdentifierPage(BaseModel):
    """Some of the identifiers that have a count; `next` goes into `?cursor=`, null at the end."""

    identifiers: list[IdentifierCount]
    next: str | None


class Deleted(BaseModel):
    """How many counters or requests were forgotten."""

    deleted: Count


class Reset(BaseModel):
    """How many counters were forgotten; null where new ones were begun for all identifiers at once."""

    deleted: Count | None


class EnforcementBody(BaseModel):
    """The global switch."""

    enforcement: Enforcement


class ShownEnforcement(BaseModel):
    """What is in force, and whether the API set it above the file."""

    enforcement: Enforcement
    source: Literal["file", "api"]


class ClientOrigin(BaseModel):
    """Where a client comes from, and the file that defines it, if one does."""

    source: Source
    file: str | None


class ShownConfiguration(BaseModel):
    """What is in force. `problems` is what is wrong with the files as they are now."""

    settings: Annotated[
        dict[str, Any],
        Field(description="As in the file, completed, and as the process runs; secrets are shown as ***."),
    ]
    enforcement: ShownEnforcement
    files: list[str]
    clients: Annotated[dict[str, ClientOrigin], Field(description="Of all clients in force, by id.")]
    warnings: Annotated[list[str], Field(description="Also what of the files needs a restart.")]
    problems: list[str]


class ShownAuditEntry(BaseModel):
    """Who changed what, when; `before` and `after` are null for what was not there."""

    at: Moment
    by: str
    action: str
    subject: str
    before: Any
    after: Any


class Audit(BaseModel):
    """The newest changes first."""

    entries: list[ShownAuditEntry]


class ExplainedCounter(BaseModel):
    """What a counter says, and whether this request would fit."""

    identifier: str
    key: str
    limit: int
    cost: int
    used: Count
    remaining: Count
    fits: bool
    retry_seconds: Annotated[float, Field(ge=0)] | None
    reset_seconds: Annotated[float, Field(ge=0)]


class ExplainedRule(BaseModel):
    """A policy whose route and method match, and what became of it."""

    id: str
    route: str
    method: str | list[str]
    mode: Mode
    applies: bool
    left_out_by: Annotated[str | None, Field(description="The final policy that leaves it out.")]
    shadow: bool
    counter: ExplainedCounter | None


class Explanation(BaseModel):
    """How a request is decided; `status` and `headers` are what a proxy would be answered."""

    client: str | None
    found_by: FoundBy
    path: Annotated[str | None, Field(description="The canonical path that routes are compared with.")]
    preflight: Annotated[
        bool, Field(description="A CORS preflight, not counted because of `count_preflights: false`.")
    ]
    rules: list[ExplainedRule]
    allowed: bool
    reason: Reason
    rule_id: str | None
    status: int
    headers: dict[str, str]


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class WrongField(BaseModel):
    field: str
    message: str


class Invalid(Problem):
    """What is wrong with a request, field by field."""

    errors: Annotated[list[WrongField], Field(min_length=1)]


class Health(BaseModel):
    status: Literal["ok"]


class Decided(BaseModel):
    """The answer of `POST /v1/evaluate`; numbers are null where no policy's apply."""

    allowed: bool
    limit: Annotated[int, Field(ge=1)] | None
    remaining: Count | None
    reset_at: Moment | None
    retry_after: Annotated[int, Field(ge=1)] | None
    rule_id: str | None
    reason: Reason


class RateCheckBody(BaseModel):
    endpoint: Annotated[str, Field(min_length=1, max_length=128)]


class RateChecked(BaseModel):
    """The answer of `POST /rate/check`."""

    status: Literal["ok", "rate_limited"]
    limit: Annotated[int, Field(ge=1)] | None
    remaining: Count | None
    reset: Count | None
    retry_after: Annotated[int, Field(ge=1)] | None


class RateStatus(RateChecked):
    """The same, and how many requests count at the moment."""

    count: Count | None
