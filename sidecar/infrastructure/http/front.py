"""The HTTP front of the data port: from a socket to a dialect and back.

It stands on aiohttp's low-level server, not on its router, because proxies hand over the client's own method
and target: every one of them (`OPTIONS *`, `//x`, 60 kB, an unknown Expect) needs a decision, and a 404, 405
or 417 of the framework would be the client's final answer. Which dialect a request speaks is said by its path
alone.
"""

import re
import uuid
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from aiohttp import web

from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.readiness import Readiness
from sidecar.application.user_rates import UserRates
from sidecar.domain.decision import Reason
from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.http.access import Access
from sidecar.infrastructure.http.dialects import ENVOY, PROXIES, Dialect, envoy, evaluate, ratelog
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call, joined, origin_form
from sidecar.infrastructure.http.server import read_body
from sidecar.infrastructure.http.sources import Sources
from sidecar.infrastructure.problem import CONTENT_TYPE, invalid_fields, problem
from sidecar.infrastructure.validation import Malformed, Rejected

_PINNED = re.compile(r"/clients/([A-Za-z0-9._-]{1,64})(/.*)", re.DOTALL)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_NO_ACCESS = {
    "peer": "this address is not in listen.trusted_peers",
    "secret": "this needs the secret of listen.secret in its header",
}


class Watcher(Protocol):
    """Hears of what the edge could not read and whom it refused; must not raise or block."""

    def unreadable_address(self) -> None: ...

    def unreadable_target(self, dialect: str) -> None: ...

    def peer_refused(self, reason: str, peer: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontOptions:
    """What the configuration says of the data port; replaced whole."""

    #: By the dialect's name; `sources` for all others.
    sources_of: Mapping[str, Sources] = field(default_factory=dict)
    sources: Sources = field(default_factory=Sources)
    access: Access = field(default_factory=Access)
    #: Of `proxy`, `evaluate` and `rate`.
    apis: Collection[str] = ("proxy", "evaluate", "rate")
    response: ResponseOptions = field(default_factory=ResponseOptions)


class Front:
    """Answers every request to the data port."""

    def __init__(
        self, evaluator: RateLimitEvaluator, rates: UserRates, readiness: Readiness, watcher: Watcher
    ) -> None:
        self.options = FrontOptions()
        self._evaluator = evaluator
        self._rates = rates
        self._readiness = readiness
        self._watcher = watcher

    async def handle(self, request: web.BaseRequest) -> web.Response:
        request_id = _request_id(request.headers.get("X-Request-ID", ""))
        answer = await self._answer(request, origin_form(request.raw_path), request_id)
        headers = {"X-Request-ID": request_id, "Server": "sidecar", **answer.headers}
        response = web.Response(status=answer.status, headers=headers, body=answer.body)
        if not self._readiness.serving:
            # The proxy is to take another connection, and soon another replica.
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest, target: str, request_id: str) -> Answer:
        match target.partition("?")[0]:
            case "/health":
                return Answer(200, {"Content-Type": "application/json"}, b'{"status": "ok"}')
            case "/ready":
                return self._ready()
        access, peer = self.options.access, _peer(request)
        if not access.admits(peer):
            return self._no_access("peer", peer)
        headers = joined(request.headers.items())
        if not access.takes_secret(headers):
            return self._no_access("secret", peer)
        client_id = None
        if pinned := _PINNED.fullmatch(target):
            client_id, target = pinned.groups()
        if "proxy" in self.options.apis and (found := _dialect(target)):
            dialect, own_target = found
            return await self._ask(dialect, Call(request.method, own_target, headers, client_id, request_id))
        if client_id is None:
            return await self._api(request, Call(request.method, target, headers, None, request_id))
        return _NOTHING

    def _no_access(self, wrong: str, peer: str | None) -> Answer:
        """A plain 403, which no proxy takes for a limit or for a limiter that is broken."""
        self._watcher.peer_refused(wrong, "gone" if peer is None else peer)
        return _error(403, _NO_ACCESS[wrong])

    async def _api(self, request: web.BaseRequest, call: Call) -> Answer:
        apis = self.options.apis
        match call.target.partition("?")[0]:
            case evaluate.PATH if "evaluate" in apis:
                return await self._evaluate(request, call.request_id)
            case ratelog.CHECK_PATH if "rate" in apis:
                return await self._rate(self._rate_check(request, call))
            case ratelog.STATUS_PATH if "rate" in apis:
                return await self._rate(self._rate_status(call))
        return _NOTHING

    async def _ask(self, dialect: Dialect, call: Call) -> Answer:
        options = self.options
        request = dialect.read(call, options.sources_of.get(dialect.name, options.sources))
        if request.address is None:
            self._watcher.unreadable_address()
        if not request.target or not request.method:
            self._watcher.unreadable_target(dialect.name)
        decision = await self._evaluator.evaluate(request)
        return dialect.write(decision, options.response)

    async def _evaluate(self, request: web.BaseRequest, request_id: str) -> Answer:
        if request.method != "POST":
            return _error(405, "evaluate takes POST", Allow="POST")
        if (body := await read_body(request)) is None:
            return _error(413, "expected a body of at most 1 MiB")
        try:
            asked = evaluate.read(body, request_id)
        except Malformed as error:
            return _error(400, str(error))
        except Rejected as error:
            return Answer(422, {"Content-Type": CONTENT_TYPE}, invalid_fields(error.problems))
        rule_set = self._evaluator.rule_set
        if rule_set.complete and rule_set.client(asked.client_id or "") is None:
            return _error(404, "there is no such client")
        decision = await self._evaluator.evaluate(asked)
        if decision.reason is Reason.IDENTIFIER_MISSING:
            missing = [("identifier", f"the rule {decision.rule_id!r} needs another identifier")]
            return Answer(422, {"Content-Type": CONTENT_TYPE}, invalid_fields(missing))
        return evaluate.write(decision, self.options.response)

    async def _rate(self, answer: Awaitable[Answer]) -> Answer:
        try:
            return await answer
        except Malformed as error:
            return _error(400, str(error))
        except (Rejected, InvalidValue) as error:
            return Answer(422, {"Content-Type": CONTENT_TYPE}, invalid_fields(error.problems))

    async def _rate_check(self, request: web.BaseRequest, call: Call) -> Answer:
        if call.method != "POST":
            return _error(405, "check takes POST", Allow="POST")
        if (body := await read_body(request)) is None:
            return _error(413, "expected a body of at most 1 MiB")
        decision = await self._rates.check(ratelog.read_check(replace(call, body=body)), call.request_id)
        return ratelog.write_check(decision, self.options.response)

    async def _rate_status(self, call: Call) -> Answer:
        if call.method != "GET":
            return _error(405, "status takes GET", Allow="GET")
        decision = await self._rates.status(ratelog.read_status(call))
        return ratelog.write_status(decision, self.options.response)

    def _ready(self) -> Answer:
        return Answer(self._readiness.status, {"Content-Type": "text/plain"}, self._readiness.word.encode())


def _peer(request: web.BaseRequest) -> str | None:
    """The address of who asks; empty on a Unix socket, whose peers have none that says anything."""
    here = request.get_extra_info("sockname")
    return "" if isinstance(here, str | bytes) else request.remote


def _request_id(given: str) -> str:
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _error(status: int, detail: str, **headers: str) -> Answer:
    return Answer(status, {"Content-Type": CONTENT_TYPE, **headers}, problem(status, detail))


def _dialect(target: str) -> tuple[Dialect, str] | None:
    """The proxy's dialect, and the client's own target where the path has it."""
    if target.startswith(envoy.PATH):
        return ENVOY, target.removeprefix(envoy.PATH)
    dialect = PROXIES.get(target.partition("?")[0])
    return (dialect, "") if dialect else None


_NOTHING = _error(404, "nothing is served at this path; Envoy needs path_prefix: /authz")
