"""JSON Web Tokens as credentials of the admin port. Needs the extra `jwt`, so only `access` imports it, late.

The algorithms are those of the configuration, never what a token asks for: its header only chooses among them
and names a key. A secret goes with HS256 alone and public keys never do, so that nobody signs with a key that
everyone may read. Where keys come from is the configuration's matter too: `jku`, `x5u` and `jwk` in a token
are not looked at.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import jwt
from jwt.exceptions import InvalidSubjectError

from sidecar.infrastructure.admin.access import Caller, Failure, TokenRules
from sidecar.infrastructure.admin.key_sets import FetchedKeys, FileKeys, fetch_from

MAX_TOKEN_LENGTH = 8192
_MAX_SUBJECT_LENGTH = 256
_ROLES = ("viewer", "admin")
#: What the library says, from the special to the general.
_FAILURES: tuple[tuple[type[Exception], Failure], ...] = (
    (jwt.ExpiredSignatureError, Failure.EXPIRED),
    (jwt.ImmatureSignatureError, Failure.NOT_YET_VALID),
    (jwt.InvalidAudienceError, Failure.AUDIENCE),
    (jwt.InvalidIssuerError, Failure.ISSUER),
    (jwt.InvalidSignatureError, Failure.SIGNATURE),
    (jwt.MissingRequiredClaimError, Failure.CLAIMS),
    (InvalidSubjectError, Failure.CLAIMS),
    (jwt.InvalidAlgorithmError, Failure.ALGORITHM),
)


class Keys(Protocol):
    """Where the key of a token is found."""

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | bytes | None: ...


class Tokens:
    """Verifies tokens by the rules of the configuration."""

    def __init__(
        self, rules: TokenRules, *, keys: Keys | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules
        self._algorithms = ("HS256",) if rules.secret is not None else rules.algorithms
        self._keys = keys or _keys(rules, self._algorithms, clock)

    async def caller(self, token: str) -> Caller | Failure:
        """Whom the token names, or what is wrong with it."""
        header = _header(token)
        if header is None:
            return Failure.MALFORMED
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            return Failure.ALGORITHM
        key = await self._keys.find(header.get("kid"), algorithm)
        if key is None:
            return Failure.UNKNOWN_KEY
        claims = self._verified(token, key, algorithm)
        return claims if isinstance(claims, Failure) else _caller(claims)

    def _verified(self, token: str, key: jwt.PyJWK | bytes, algorithm: str) -> dict[str, Any] | Failure:
        rules = self._rules
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=rules.audience,
                issuer=rules.issuer,
                leeway=rules.leeway_seconds,
                options={
                    "require": ["exp", "sub"],  # without a subject the audit list could not say who
                    "verify_aud": rules.audience is not None,
                    "enforce_minimum_key_length": True,
                },
            )
        except Exception as error:  # strangers write tokens: whatever that brings about, it lets nobody in
            known = (failure for kind, failure in _FAILURES if isinstance(error, kind))
            return next(known, Failure.MALFORMED)


class _Secret:
    """The one key of HS256, whatever a token calls it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    async def find(self, kid: str | None, algorithm: str) -> bytes:
        return self._secret


def _keys(rules: TokenRules, algorithms: tuple[str, ...], clock: Callable[[], float]) -> Keys:
    if rules.secret is not None:
        return _Secret(rules.secret)
    if rules.jwks_url is not None:
        return FetchedKeys(fetch_from(rules.jwks_url), algorithms, clock)
    return FileKeys(rules.jwks_file or "", algorithms, clock)


def _header(token: str) -> dict[str, Any] | None:
    """What the token says of itself, unverified; `None` for what is no token."""
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
        return None
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return header if isinstance(header.get("kid", ""), str) else None


def _caller(claims: dict[str, Any]) -> Caller | Failure:
    subject, role = claims["sub"], claims.get("role")
    if not subject.strip() or len(subject) > _MAX_SUBJECT_LENGTH or not subject.isprintable():
        return Failure.CLAIMS
    if role not in _ROLES:
        return Failure.ROLE
    return Caller(f"jwt:{subject}", role == "admin")
