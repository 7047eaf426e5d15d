"""The configuration file as models: every key with its default, its bounds and what it is for.

Clients and rules are the domain's own types. Here nothing reads the environment: `loading` fills in what it
gives. Messages are written for people, since they are what a wrong file answers with.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
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
from sidecar.domain.rule import YEAR_SECONDS, Client, Enforcement, OnMissing, OnUnavailable
from sidecar.infrastructure.config.admin import Admin
from sidecar.infrastructure.config.store_url import STORES, check_store_url
from sidecar.infrastructure.validation import Strict

_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"  # RFC 9110
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
CookieName = Annotated[str, StringConstraints(pattern=_NAME)]
HeaderName = Annotated[str, StringConstraints(pattern=_NAME, to_lower=True)]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen: `path` is that of a Unix socket, else `host` (IPv6 without brackets) and `port`."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Read `host:port`, `[::1]:port` or `unix:/path`; raises `ValueError` saying what was expected."""
        if text.startswith("unix:/") and len(text) > len("unix:/"):
            return cls(path=text.removeprefix("unix:"))
        match = _AUTHORITY.fullmatch(text)
        if not match or int(match[3]) > 65535 or not (match[2] or _is_ipv6(match[1])):
            raise ValueError(f"expected host:port, [::1]:port or unix:/path, got {text!r}")
        return cls(host=match[1] or match[2], port=int(match[3]))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _check_endpoint(text: str) -> str:
    return str(Endpoint.parse(text))


Address = Annotated[str, AfterValidator(_check_endpoint)]


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
    key_prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,32}$")] = Field(
        default="rl", description="What every key in the store begins with."
    )


class Listen(Strict):
    """Where the two ports are."""

    authz: Address = Field(
        default="127.0.0.1:8000",
        description="The data port, for proxies: host:port, [::1]:port or unix:/path.",
    )
    admin: Address = Field(
        default="127.0.0.1:8001",
        description="The admin port, for people and Prometheus; written as authz is.",
    )

    @model_validator(mode="after")
    def _apart(self) -> "Listen":
        endpoint = self.authz_endpoint
        if self.authz == self.admin and (endpoint.path or endpoint.port):
            raise ValueError(f"authz and admin need two addresses, got {self.authz!r} for both")
        return self

    @property
    def authz_endpoint(self) -> Endpoint:
        return Endpoint.parse(self.authz)

    @property
    def admin_endpoint(self) -> Endpoint:
        return Endpoint.parse(self.admin)


class ClientIp(Strict):
    """Whose address a request comes from."""

    header: HeaderName | None = Field(
        default="x-client-ip",
        description="A header with the address alone, that the proxy overwrites; null: X-Forwarded-For only.",
    )
    trusted_hops: int = Field(
        default=1,
        ge=1,
        le=32,
        description="Where header is null: which X-Forwarded-For entry is the caller; 1 is the rightmost.",
    )
    ipv6_prefix: int = Field(
        default=64, ge=16, le=128, description="IPv6 callers are counted by network of this many bits."
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
    workers: int = Field(default=1, description="Processes that serve; 1 in this version.")
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

    @field_validator("workers")
    @classmethod
    def _one_worker(cls, workers: int) -> int:
        if workers != 1:
            raise ValueError(f"expected 1: this version serves from one process, got {workers}")
        return workers


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
