"""Who may do what on the admin port. No key configured: nobody may do anything."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from sidecar.infrastructure.problem import CONTENT_TYPE, problem

#: What probes and Prometheus read without a key.
OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class AdminKey:
    """A key that may read, and change only if `may_change`."""

    name: str
    key: str
    may_change: bool


def guard(keys: Sequence[AdminKey]) -> Middleware:
    """A middleware that lets only configured keys through, before it is said what exists."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        if not keys:
            return _forbidden("no admin key is configured, so the admin API is closed")
        found = find_key(keys, request.headers.get("X-Admin-Key", ""))
        if found is None:
            return _forbidden("expected a valid key in X-Admin-Key")
        if not found.may_change and request.method not in _READING:
            return _forbidden(f"the key {found.name!r} may read only")
        request["by"] = found.name
        return await handler(request)

    return check


def find_key(keys: Sequence[AdminKey], given: str) -> AdminKey | None:
    """The key that is `given`, each compared in constant time, and all of them always."""
    encoded = given.encode("utf-8", "surrogateescape")
    matching = [key for key in keys if hmac.compare_digest(key.key.encode(), encoded)]
    return matching[0] if matching else None


def _forbidden(detail: str) -> web.Response:
    return web.Response(status=403, body=problem(403, detail), headers={"Content-Type": CONTENT_TYPE})
