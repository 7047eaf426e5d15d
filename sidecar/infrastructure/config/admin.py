"""The `admin` part of the configuration file: who may use the admin port.

What would lock everybody out or let anybody in is an error here, and not a riddle at the first request.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from sidecar.infrastructure.validation import Strict

#: The hash that HS256 has; a shorter secret can be guessed more easily than the hash.
MIN_SECRET_BYTES = 32
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LIBRARIES = ("jwt", "cryptography")

Algorithm = Literal["HS256", "RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]


class AdminKey(Strict):
    """A key of the admin port."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = Field(
        description="Who holds it; the audit list has it."
    )
    key: Annotated[str, BeforeValidator(lambda key: "" if key is None else key)] = Field(
        repr=False, description="At least 8 characters. Empty: this entry is left out."
    )
    role: Literal["admin", "viewer"] = Field(default="viewer", description="viewer reads, admin changes.")

    @field_validator("key")
    @classmethod
    def _long_enough(cls, key: str) -> str:
        if 0 < len(key) < 8:
            raise ValueError("expected at least 8 characters, or none for an entry that is left out")
        return key


class Jwt(Strict):
    """Tokens for Authorization: Bearer. One of secret, jwks_url and jwks_file."""

    secret: str | None = Field(
        default=None, repr=False, description="The secret of HS256, at least 32 bytes."
    )
    jwks_url: str | None = Field(
        default=None, repr=False, description="Where the issuer publishes its keys: https://…"
    )
    jwks_file: str | None = Field(
        default=None, description="A file with such keys, by its absolute path; read again when it changes."
    )
    algorithms: tuple[Algorithm, ...] = Field(
        default=(),
        description="Which algorithms count; left out: HS256 with a secret, else RS256 and ES256.",
    )
    audience: str | None = Field(
        default=None, min_length=1, description="What aud has to name. Recommended: see docs/admin-access.md."
    )
    issuer: str | None = Field(default=None, min_length=1, description="What iss has to be. Recommended.")
    leeway_seconds: int = Field(
        default=0, ge=0, le=60, description="By how much the issuer's clock may differ from this one."
    )

    @field_validator("secret")
    @classmethod
    def _is_secret(cls, secret: str | None) -> str | None:
        if secret is not None and len(secret.encode()) < MIN_SECRET_BYTES:
            raise ValueError(f"expected at least {MIN_SECRET_BYTES} bytes")
        if secret is not None and secret.lstrip().startswith(("-----BEGIN", "ssh-")):
            raise ValueError("expected a secret that both sides share, not a key pair's key")
        return secret

    @field_validator("jwks_url")
    @classmethod
    def _is_private(cls, url: str | None) -> str | None:
        if url is not None and not _is_safe(url):
            raise ValueError("expected https://host/…, or http:// on this machine's loopback")
        return url

    @field_validator("jwks_file")
    @classmethod
    def _is_absolute(cls, path: str | None) -> str | None:
        if path is not None and (not Path(path).is_absolute() or "\0" in path):
            raise ValueError("expected an absolute path")
        return path

    @model_validator(mode="after")
    def _one_source(self) -> "Jwt":
        sources = (self.secret, self.jwks_url, self.jwks_file)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("expected one of secret, jwks_url and jwks_file")
        if self.secret is not None and set(self.algorithms) - {"HS256"}:
            raise ValueError("expected no algorithms but HS256 with a secret")
        if self.secret is None and "HS256" in self.algorithms:
            raise ValueError("expected no HS256 without a secret: public keys are known to everyone")
        return self

    @property
    def pinned(self) -> tuple[str, ...]:
        """The algorithms that count, written or not."""
        return self.algorithms or (("HS256",) if self.secret is not None else ("RS256", "ES256"))


class Admin(Strict):
    """Who may use the admin port. Without a key and without jwt nobody may: it answers 403."""

    keys: tuple[AdminKey, ...] = Field(default=(), description="Keys for the X-Admin-Key header.")
    jwt: Jwt | None = Field(default=None, description="Tokens for Authorization: Bearer.")
    failures_per_minute: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Wrong keys and tokens of one address before further ones are told when to come again.",
    )

    @field_validator("keys")
    @classmethod
    def _named_apart(cls, keys: tuple[AdminKey, ...]) -> tuple[AdminKey, ...]:
        names = [key.name for key in keys]
        if len(set(names)) < len(names):
            raise ValueError("expected another name for each key")
        return tuple(key for key in keys if key.key)

    @field_validator("jwt")
    @classmethod
    def _can_be_verified(cls, jwt: Jwt | None) -> Jwt | None:
        if jwt is not None and not all(find_spec(library) for library in _LIBRARIES):
            raise ValueError("needs libraries of an extra: pip install ratelimit-sidecar[jwt]")
        return jwt


def _is_safe(url: str) -> bool:
    """Keys that come over a line that anyone can write to would let anyone in."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))
