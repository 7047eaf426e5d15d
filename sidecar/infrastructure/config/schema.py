"""The configuration file as models: every key with its default, its bounds and what it is for.

Clients and rules are the domain's own types. Here nothing reads the environment: `loading` fills in what it
gives. Messages are written for people, since they are what a wrong file answers with.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from sidecar.domain.algorithms import MAX_SLIDING_WINDOW_LIMIT
from sidecar.domain.errors import InvalidValue
from sidecar.domain.rule import YEAR_SECONDS, Client, Enforcement, OnMissing, OnUnavailable
from sidecar.infrastructure.config.admin import Admin
from sidecar.infrastructure.config.listen import NAME, READ_ALWAYS, ClientIp, HeaderName, Listen
from sidecar.infrastructure.config.store_url import STORES, check_store_url
from sidecar.infrastructure.validation import Strict

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
CookieName = Annotated[str, StringConstraints(pattern=NAME)]


class Store(Strict):
    """Where counters live."""

    url: Annotated[str, AfterValidator(check_store_url)] = Field(
        default="embedded:", repr=False, description=f"{STORES}. Left out: the environment's REDIS_URL."
    )
    timeout_ms: int = Field(
        default=50, ge=1, le=60_000, description="What one decision may spend on the store, in milliseconds."
    )
    on_unavailable: OnUnavailable = Field(
        default=OnUnavailable.ALLOW,
        description="The answer while the store is away; a rule may have its own.",
    )
    identifiers_alarm: int = Field(
        default=100_000,
        ge=1,
        description="A rule that counts more identifiers is said in the log; it may have a cap of its own.",
    )
    key_prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,32}$")] = Field(
        default="rl", description="What every key in the store begins with."
    )


class Identity(Strict):
    """Where identifiers are found."""

    session_header: HeaderName | None = Field(default="x-session-id", description="Header of the session id.")
    session_cookie: CookieName | None = Field(default="session_id", description="Cookie of the session id.")
    user_header: HeaderName | None = Field(default="x-user-id", description="Header of the user id.")
    jwt_payload_header: HeaderName = Field(
        default="x-jwt-payload",
        description="Header in which the proxy's own JWT filter puts the payload that it has verified.",
    )
    on_missing: OnMissing = Field(
        default=OnMissing.IP, description="Who is counted where the identifier is missing; a rule may differ."
    )


class Paths(Strict):
    """How targets are read."""

    decode_slashes: bool = Field(default=False, description="Whether %2F, %5C and \\ separate segments.")


class Rate(Strict):
    """What /rate/check admits, for each user and endpoint."""

    limit: int = Field(
        default=10, ge=1, le=MAX_SLIDING_WINDOW_LIMIT, description="Requests admitted per window."
    )
    window_seconds: int = Field(
        default=60, ge=1, le=YEAR_SECONDS, description="The window's length in seconds."
    )


class Response(Strict):
    """What answers look like."""

    unavailable_status: int = Field(
        default=503, ge=400, le=599, description="The status where on_unavailable is deny; never 429."
    )

    reset: Literal["delta", "epoch"] = Field(
        default="delta",
        description="X-RateLimit-Reset in seconds from now, or since 1970 (UTC).",
    )
    legacy_headers: bool = Field(
        default=True, description="X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset."
    )
    ietf_headers: bool = Field(
        default=False,
        description="RateLimit-Policy and RateLimit of all rules, by the IETF's draft.",
    )
    envoy_ratelimited: bool = Field(
        default=False,
        description="X-Envoy-RateLimited: true with each 429 to Envoy: a front Envoy does not retry it then.",
    )

    @field_validator("unavailable_status")
    @classmethod
    def _no_refusal(cls, status: int) -> int:
        if status == 429:
            raise ValueError("expected another status than 429, which says that a limit is used up")
        return status


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]


class Settings(Strict):
    """The whole file."""

    store: Store = Field(default=Store(), description="Where counters live.")
    listen: Listen = Field(default=Listen(), description="Where the two ports are.")
    workers: int = Field(default=1, ge=1, le=64, description="Processes that serve, on the same ports.")
    enforcement: Enforcement = Field(
        default=Enforcement.ON, description="on refuses, shadow counts and reports only, off does nothing."
    )
    client_ip: ClientIp = Field(default=ClientIp(), description="Whose address a request comes from.")
    identity: Identity = Field(default=Identity(), description="Where identifiers are found.")
    client_header: HeaderName | None = Field(
        default=None,
        description="A header that names the client; callers can forge it unless the proxy sets it.",
    )
    default_client: Id | None = Field(default=None, description="The client of all other requests.")
    paths: Paths = Field(default=Paths(), description="How targets are read.")
    count_preflights: bool = Field(
        default=True,
        description="false: CORS preflights (OPTIONS with Origin and Access-Control-Request-Method) are "
        "allowed and not counted.",
    )
    rate: Rate = Field(default=Rate(), description="The limit of the /rate API.")
    response: Response = Field(default=Response(), description="What answers look like.")
    admin: Admin = Field(default=Admin(), description="Who may use the admin port.")
    clients_from: str | tuple[str, ...] | None = Field(
        default=None, description="Further files with clients: patterns, relative to this file's folder."
    )
    clients: tuple[Client, ...] = Field(default=(), description="Clients and their rules.")
    log_level: LogLevel = Field(
        default="INFO", description="DEBUG, INFO, WARNING or ERROR. Left out: the environment's LOG_LEVEL."
    )
    app_env: str = Field(
        default="development",
        description="Named in each line of the log. Left out: the environment's APP_ENV.",
    )

    @field_validator("clients_from")
    @classmethod
    def _paths(cls, named: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if "\0" in "".join(named or ()):
            raise ValueError("expected the paths of files, in which there can be no NUL")
        return named

    @model_validator(mode="after")
    def _secret_apart(self) -> "Settings":
        """What is read of a header would be counted, compared and shown."""
        ip, identity = self.client_ip, self.identity
        read = {each.header for each in (ip, *ip.dialects.values())} | {self.client_header}
        read |= {identity.session_header, identity.user_header, identity.jwt_payload_header}
        if (name := self.listen.secret_header) in read | READ_ALWAYS:
            raise InvalidValue([("listen.secret_header", f"{name!r} is read for something else")])
        return self

    @model_validator(mode="after")
    def _ports_to_share(self) -> "Settings":
        found = {"listen.authz": self.listen.authz_endpoint, "listen.admin": self.listen.admin_endpoint}
        wrong = [(name, str(at)) for name, at in found.items() if at.path or not at.port]
        if self.workers > 1 and wrong:
            needed = f"expected host:port, because the {self.workers} workers share it, got"
            raise InvalidValue((name, f"{needed} {text!r}") for name, text in wrong)
        return self


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors; it knows nothing of `${NAME}`."""
    schema = Settings.model_json_schema()
    for definition in (schema, *schema["$defs"].values()):
        # Docstrings go on about errors; an editor shows their first sentence.
        definition["description"] = re.split(r" Raises |\n\n", definition.get("description", ""))[0]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Rate-limiting sidecar configuration",
    }
