"""Who may do what on the admin port. Nothing configured: nobody may do anything.

The guard stands before the routes: without a valid credential every path and method is answered alike, so
that nobody learns what exists. A failure is told to the log and the metrics by its reason, to the caller only
as one: which part of a forged token is right is nobody's business.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from sidecar.infrastructure.admin.attempts import FailureLimit
from sidecar.infrastructure.problem import CONTENT_TYPE, problem

#: Under which a request has the name of who sent it, for the audit list.
BY = web.RequestKey("BY", str)
#: What probes and Prometheus read without a key.
OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
#: A page for browsers, which send no key when they open an address: it has no data, asks for a key and sends
#: it along. Open as soon as there is any key or token that could be typed in.
DOCS_PATH = "/docs"
SHELL_PATHS = frozenset(
    {
        DOCS_PATH,
        f"{DOCS_PATH}/page.js",
        f"{DOCS_PATH}/page.css",
        f"{DOCS_PATH}/swagger-ui-bundle.js",
        f"{DOCS_PATH}/swagger-ui.css",
        f"{DOCS_PATH}/favicon-32x32.png",
    }
)
_READING = frozenset({"GET", "HEAD"})
_ONLY_READS = "only_reads"


class Failure(StrEnum):
    """Why a request was refused; the `reason` of metric and log."""

    CLOSED = "closed"
    MISSING = "missing"
    READ_ONLY = "read_only"
    WRONG_KEY = "wrong_key"
    NO_TOKENS = "tokens_not_configured"
    MALFORMED = "malformed_token"
    ALGORITHM = "token_algorithm"
    UNKNOWN_KEY = "token_key_unknown"
    SIGNATURE = "token_signature"
    EXPIRED = "token_expired"
    NOT_YET_VALID = "token_not_yet_valid"
    AUDIENCE = "token_audience"
    ISSUER = "token_issuer"
    CLAIMS = "token_claims"
    ROLE = "token_role"


#: Nothing was tried here that could be guessed, so it counts towards no limit.
_UNLIMITED = frozenset({Failure.CLOSED, Failure.MISSING, Failure.READ_ONLY})


@dataclass(frozen=True, slots=True)
class AdminKey:
    """A key that may read, and change only if `may_change`."""

    name: str
    key: str = field(repr=False)
    may_change: bool


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the audit list has it."""

    name: str
    may_change: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token has to fulfil: one of `secret`, `jwks_url`, `jwks_file` verifies its signature."""

    secret: str | None = field(default=None, repr=False)
    jwks_url: str | None = field(default=None, repr=False)
    jwks_file: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    audience: str | None = None
    issuer: str | None = None
    leeway_seconds: int = 0


class TokenCheck(Protocol):
    async def caller(self, token: str) -> Caller | Failure: ...


class Access:
    """The keys and tokens in force, to be exchanged at any time, and the failures of each address.

    Each of `observers` is told every failure: its reason and the address it came from.
    """

    def __init__(self, *observers: Callable[[str, str], None], failures: FailureLimit | None = None) -> None:
        self.keys: Sequence[AdminKey] = ()
        self.tokens: TokenCheck | None = None
        self._rules: TokenRules | None = None
        self._observers = observers
        self._failures = FailureLimit() if failures is None else failures

    def use(
        self, keys: Sequence[AdminKey], rules: TokenRules | None = None, failures_per_minute: int = 10
    ) -> None:
        """Put these in force; while the rules for tokens stay the same, so do the issuer's keys."""
        if rules != self._rules:
            # First, since it alone may fail, and then nothing is to have changed.
            self.tokens = _tokens(rules) if rules else None
            self._rules = rules
        self.keys = tuple(keys)
        self._failures.per_minute = failures_per_minute

    @property
    def closed(self) -> bool:
        """Whether there is nothing by which anybody could be known."""
        return not self.keys and self.tokens is None

    async def recognise(self, headers: Mapping[str, str]) -> Caller | Failure:
        """Who it is, by key or by token. Where both are valid, the one that may do more."""
        if self.closed:
            return Failure.CLOSED
        key, token = headers.get("X-Admin-Key"), _bearer(headers)
        by_key = find_key(self.keys, key) if key else None
        if by_key and (by_key.may_change or not token):
            return Caller(by_key.name, by_key.may_change)
        by_token = await self._by_token(token) if token else Failure.MISSING
        if by_key and not (isinstance(by_token, Caller) and by_token.may_change):
            return Caller(by_key.name, by_key.may_change)
        return Failure.WRONG_KEY if key and by_token is Failure.MISSING else by_token

    def failed(self, reason: Failure, address: str) -> int | None:
        """Note a failure; where the address has had too many, the seconds it is to wait."""
        for observer in self._observers:
            observer(reason.value, address)
        return None if reason in _UNLIMITED else self._failures.charge(address)

    async def _by_token(self, token: str) -> Caller | Failure:
        return await self.tokens.caller(token) if self.tokens else Failure.NO_TOKENS


def guard(access: Access) -> Middleware:
    """A middleware that lets only known callers through, before it is said what exists.

    A valid credential always passes, however many wrong ones came from the same address: an operator is not
    to be locked out by whoever shares it.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if path in OPEN_PATHS or (path in SHELL_PATHS and not access.closed):
            return await handler(request)
        found = await access.recognise(request.headers)
        if isinstance(found, Caller) and not (found.may_change or _reads(request)):
            access.failed(Failure.READ_ONLY, request.remote or "")
            return _refused(f"{found.name!r} may read only")
        if isinstance(found, Failure):
            return _failed(found, access.failed(found, request.remote or ""))
        request[BY] = found.name
        return await handler(request)

    return check


def only_reads(handler: Handler) -> Handler:
    """Says in the table of routes that this POST changes nothing, so that viewers may send it."""

    async def reading(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    setattr(reading, _ONLY_READS, True)
    return reading


def find_key(keys: Sequence[AdminKey], given: str) -> AdminKey | None:
    """The key that is `given`, each compared in constant time, and all of them always."""
    digest = _digest(given)
    matching = [key for key in keys if hmac.compare_digest(_digest(key.key), digest)]
    return matching[0] if matching else None


def _digest(key: str) -> bytes:
    """Of one length, since comparing takes a time that depends on it. Headers may hold any bytes."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _reads(request: web.Request) -> bool:
    return request.method in _READING or getattr(request.match_info.handler, _ONLY_READS, False)


def _tokens(rules: TokenRules) -> TokenCheck:
    from sidecar.infrastructure.admin.tokens import Tokens  # noqa: PLC0415 - its libraries are an extra

    return Tokens(rules)


def _failed(reason: Failure, retry_seconds: int | None) -> web.Response:
    if reason is Failure.CLOSED:
        return _refused("no admin key is configured, so the admin API is closed")
    if retry_seconds is not None:
        detail = "too many failures from this address; a valid key or token still passes"
        return _refused(detail, **{"Retry-After": str(retry_seconds)})
    return _refused("expected a valid key in X-Admin-Key, or a valid token in Authorization: Bearer")


def _refused(detail: str, **headers: str) -> web.Response:
    headers |= {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
    return web.Response(status=403, body=problem(403, detail), headers=headers)
