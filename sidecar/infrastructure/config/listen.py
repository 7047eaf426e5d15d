"""The parts of the configuration file that say where to listen, who may ask, and whose address it is."""

import re
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from sidecar.domain.address import canonical_network
from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.certificates import CertificateFiles
from sidecar.infrastructure.validation import Strict

NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"  # RFC 9110
HeaderName = Annotated[str, StringConstraints(pattern=NAME, to_lower=True)]

#: Shorter secrets can be guessed; longer ones are more than proxies take for a header.
MIN_SECRET, MAX_SECRET = 16, 1024
#: Headers that are read for what they say themselves, whatever else is configured.
READ_ALWAYS = {"host", "cookie", "user-agent", "expect", "content-length", "transfer-encoding", "connection"}
READ_ALWAYS |= {f"x-original-{what}" for what in ("method", "uri", "url")}
READ_ALWAYS |= {f"x-forwarded-{what}" for what in ("for", "method", "uri", "host")} | {"x-request-id"}
#: What may stand in `trusted_peers` beside networks.
LOOPBACK, PRIVATE = "loopback", "private"
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")

Api = Literal["proxy", "evaluate", "rate"]
DialectName = Literal["envoy", "nginx", "ingress-nginx", "forward-auth"]


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


def _check_network(text: str) -> str:
    try:
        canonical_network(text)
    except ValueError as error:
        raise ValueError(f"expected an address or a CIDR network: {error}") from None
    return text


def _check_peers(text: str) -> str:
    if text in (LOOPBACK, PRIVATE):
        return text
    try:
        return _check_network(text)
    except ValueError as error:
        raise ValueError(f"expected {LOOPBACK!r}, {PRIVATE!r}, or a network: {error}") from None


def _check_secret(secret: str) -> str:
    if (
        len(secret) < MIN_SECRET
        or not secret.isascii()
        or not secret.isprintable()
        or secret != secret.strip()
    ):
        raise ValueError(
            f"expected at least {MIN_SECRET} printable ASCII characters, as a header carries them"
        )
    if len(secret) > MAX_SECRET:
        raise ValueError(f"expected at most {MAX_SECRET} characters")
    return secret


def _check_apis(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("expected at least one of 'proxy', 'evaluate' and 'rate'")
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ValueError(f"{twice[0]!r} stands more than once")
    return names


def _check_address_header(name: str) -> str:
    """X-Forwarded-For alone holds addresses, and is warned of (`port_advice`)."""
    if name in READ_ALWAYS - {"x-forwarded-for"}:
        raise ValueError(f"{name!r} is read for something else")
    return name


FilePath = Annotated[str, StringConstraints(min_length=1)]
WrittenNetwork = Annotated[str, AfterValidator(_check_network)]
Peers = Annotated[str, AfterValidator(_check_peers)]
Secret = Annotated[str, AfterValidator(_check_secret), Field(min_length=MIN_SECRET, max_length=MAX_SECRET)]
AddressHeader = Annotated[HeaderName, AfterValidator(_check_address_header)]
Secrets = Annotated[tuple[Secret, ...], Field(min_length=1)]


class Tls(Strict):
    """HTTPS, and with `client_ca` for those alone who have a certificate of theirs.

    Paths are relative to the folder of the configuration file.
    """

    certificate: FilePath = Field(description="The certificate and those that it needs, a PEM file.")
    key: FilePath = Field(description="Its private key, a PEM file without a passphrase.")
    client_ca: FilePath | None = Field(
        default=None, description="Whoever connects needs a certificate of one of these authorities."
    )

    @model_validator(mode="after")
    def _loads(self) -> "Tls":
        self.files.context()
        return self

    @property
    def files(self) -> CertificateFiles:
        client_ca = Path(self.client_ca) if self.client_ca else None
        return CertificateFiles(Path(self.certificate), Path(self.key), client_ca)


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

    authz_tls: Tls | None = Field(default=None, description="TLS on the data port.")
    admin_tls: Tls | None = Field(default=None, description="TLS on the admin port.")
    trusted_peers: tuple[Peers, ...] = Field(
        default=(LOOPBACK, PRIVATE),
        description="Who may ask on the data port: addresses and networks, loopback, private. "
        "Others get 403; whoever reaches a Unix socket may ask.",
    )
    secret: Secret | Secrets | None = Field(
        default=None,
        repr=False,
        description="What the proxy has to send in secret_header: one, or several while it is replaced.",
    )
    secret_header: HeaderName = Field(default="x-sidecar-secret", description="The header of the secret.")
    apis: Annotated[tuple[Api, ...], AfterValidator(_check_apis)] = Field(
        default=("proxy", "evaluate", "rate"),
        description="What the data port serves; beside it always /health and /ready.",
    )
    leave_seconds: float = Field(
        default=0.5,
        ge=0,
        le=300,
        description="How long the ports stay open after SIGTERM, not ready any more, so that proxies notice.",
    )
    max_connections: int = Field(
        default=4096,
        ge=16,
        le=1_000_000,
        description="Connections that each process holds on the data port; a new one beyond takes the place "
        "of idle ones.",
    )

    @model_validator(mode="after")
    def _apart(self) -> "Listen":
        endpoint = self.authz_endpoint
        if self.authz == self.admin and (endpoint.path or endpoint.port):
            raise ValueError(f"authz and admin need two addresses, got {self.authz!r} for both")
        return self

    @model_validator(mode="after")
    def _tls_on_tcp(self) -> "Listen":
        """Who may open a Unix socket is said by its file."""
        ports = {"authz_tls": (self.authz_endpoint, self.authz_tls)}
        ports["admin_tls"] = (self.admin_endpoint, self.admin_tls)
        if wrong := [(name, endpoint) for name, (endpoint, tls) in ports.items() if tls and endpoint.path]:
            raise InvalidValue((name, f"belongs to host:port, not to {endpoint}") for name, endpoint in wrong)
        return self

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.secret,) if isinstance(self.secret, str) else self.secret or ()

    @property
    def authz_endpoint(self) -> Endpoint:
        return Endpoint.parse(self.authz)

    @property
    def admin_endpoint(self) -> Endpoint:
        return Endpoint.parse(self.admin)


class AddressOf(Strict):
    """Where an address is found."""

    header: AddressHeader | None = Field(
        default="x-client-ip",
        description="A header with the address alone, that the proxy overwrites; null: X-Forwarded-For only.",
    )
    trusted_hops: int = Field(
        default=1,
        ge=1,
        le=32,
        description="Where header is null: which X-Forwarded-For entry is the caller; 1 is the rightmost.",
    )
    trusted_networks: tuple[WrittenNetwork, ...] = Field(
        default=(),
        description="Where header is null, instead of trusted_hops: the caller is the rightmost "
        "X-Forwarded-For entry that is in none of these.",
    )


class ClientIp(AddressOf):
    """Whose address a request comes from."""

    ipv6_prefix: int = Field(
        default=64, ge=16, le=128, description="IPv6 callers are counted by network of this many bits."
    )
    dialects: dict[DialectName, AddressOf] = Field(
        default={}, description="Dialects whose proxy writes it elsewhere; nothing is taken from above."
    )

    def of(self, dialect: str) -> AddressOf:
        return next((own for name, own in self.dialects.items() if name == dialect), self)
