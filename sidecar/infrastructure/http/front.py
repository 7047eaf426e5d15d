"""The front of the data port: from a call to its dialect, to the decision, and back.

Proxies hand over the client's own method and target: every one of them (`OPTIONS *`, `//x`, 60 kB, an unknown
Expect) needs a decision, and a 404, 405 or 417 would be the client's final answer. Which dialect a request
speaks is said by its path alone.
"""

import logging
import re
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.readiness import Readiness
from sidecar.application.user_rates import UserRates
from sidecar.domain.decision import Decision, Reason
from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.http.access import Access
from sidecar.infrastructure.http.dialects import ENVOY, PROXIES, Dialect, envoy, evaluate, ratelog
from sidecar.infrastructure.http.errors import FAILED, error_answer
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call, Incoming, Respond, origin_form
from sidecar.infrastructure.http.server import read_body
from sidecar.infrastructure.http.sources import Sources
from sidecar.infrastructure.http.writing import new_request_id
from sidecar.infrastructure.problem import CONTENT_TYPE, invalid_fields
from sidecar.infrastructure.validation import Malformed, Rejected

_log = logging.getLogger("sidecar.http")
_PINNED = re.compile(r"/clients/([A-Za-z0-9._-]{1,64})(/.*)", re.DOTALL)
_is_request_id = re.compile(r"[A-Za-z0-9._-]{1,128}").fullmatch
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

    @property
    def serving(self) -> bool:
        return self._readiness.serving

    def start(self, call: Incoming, respond: Respond) -> Coroutine[Any, Any, Answer] | None:
        """Answers through `respond`, at once or once it is decided; of the APIs, what is returned answers."""
        options, access = self.options, self.options.access
        if not call.target.startswith("/"):
            call.target = origin_form(call.target)
        dialect = _dialect(call)
        if dialect is None and (probed := self._probed(call.target)):
            respond(probed)
        elif not access.admits(call.peer):
            respond(self._no_access("peer", call.peer))
        elif access.secrets and not _take_secret(call, access):
            respond(self._no_access("secret", call.peer))
        else:
            given = call.headers.get("x-request-id", "")
            call.request_id = given if _is_request_id(given) else new_request_id()
            dialect = dialect or _pinned_dialect(call)
            if dialect is None and call.client_id is None:
                return self._api(call)
            if dialect is None or "proxy" not in options.apis:
                respond(_NOTHING)
            else:
                self._ask(dialect, call, respond)
        return None

    def _no_access(self, wrong: str, peer: str | None) -> Answer:
        """A plain 403, which no proxy takes for a limit or for a limiter that is broken."""
        self._watcher.peer_refused(wrong, "gone" if peer is None else peer)
        return error_answer(403, _NO_ACCESS[wrong])

    async def _api(self, call: Incoming) -> Answer:
        apis = self.options.apis
        match call.target.partition("?")[0]:
            case evaluate.PATH if "evaluate" in apis:
                return await self._evaluate(call)
            case ratelog.CHECK_PATH if "rate" in apis:
                return await self._rate(self._rate_check(call))
            case ratelog.STATUS_PATH if "rate" in apis:
                return await self._rate(self._rate_status(call))
        return _NOTHING

    def _ask(self, dialect: Dialect, call: Call, respond: Respond) -> None:
        options = self.options
        request = dialect.read(call, options.sources_of.get(dialect.name, options.sources))
        if request.address is None:
            self._watcher.unreadable_address()
        if not request.target or not request.method:
            self._watcher.unreadable_target(dialect.name)
        self._evaluator.decide(request, partial(_answer, respond, dialect, options.response))

    async def _evaluate(self, call: Incoming) -> Answer:
        if call.method != "POST":
            return error_answer(405, "evaluate takes POST", Allow="POST")
        body = await _body(call)
        if isinstance(body, Answer):
            return body
        try:
            asked = evaluate.read(body, call.request_id)
        except Malformed as error:
            return error_answer(400, str(error))
        except Rejected as error:
            return _invalid(error.problems)
        rule_set = self._evaluator.rule_set
        if rule_set.complete and rule_set.client(asked.client_id or "") is None:
            return error_answer(404, "there is no such client")
        decision = await self._evaluator.evaluate(asked)
        if decision.reason is Reason.IDENTIFIER_MISSING:
            missing = [("identifier", f"the rule {decision.rule_id!r} needs another identifier")]
            return _invalid(missing)
        return evaluate.write(decision, self.options.response)

    async def _rate(self, answer: Awaitable[Answer]) -> Answer:
        try:
            return await answer
        except Malformed as error:
            return error_answer(400, str(error))
        except (Rejected, InvalidValue) as error:
            return _invalid(error.problems)

    async def _rate_check(self, call: Incoming) -> Answer:
        if call.method != "POST":
            return error_answer(405, "check takes POST", Allow="POST")
        body = await _body(call)
        if isinstance(body, Answer):
            return body
        call.body = body
        decision = await self._rates.check(ratelog.read_check(call), call.request_id)
        return ratelog.write_check(decision, self.options.response)

    async def _rate_status(self, call: Call) -> Answer:
        if call.method != "GET":
            return error_answer(405, "status takes GET", Allow="GET")
        decision = await self._rates.status(ratelog.read_status(call))
        return ratelog.write_status(decision, self.options.response)

    def _probed(self, target: str) -> Answer | None:
        """Liveness and readiness, which anybody may ask."""
        if not target.startswith(("/health", "/ready")):
            return None
        match target.partition("?")[0]:
            case "/health":
                return _HEALTHY
            case "/ready":
                word = self._readiness.word.encode()
                return Answer.of(self._readiness.status, {"Content-Type": "text/plain"}, word)
        return None


def _invalid(problems: Iterable[tuple[str, str]]) -> Answer:
    return Answer.of(422, {"Content-Type": CONTENT_TYPE}, invalid_fields(problems))


async def _body(call: Incoming) -> bytes | Answer:
    try:
        body = await read_body(call, call.headers.get("expect", ""))
    except TimeoutError:
        call.keep_alive = False
        return error_answer(408, "the body did not come in time")
    return error_answer(413, "expected a body of at most 1 MiB") if body is None else body


def _answer(respond: Respond, dialect: Dialect, options: ResponseOptions, decision: Decision) -> None:
    """Whatever is wrong, the proxy gets an answer: it waits for one."""
    try:
        answer = dialect.write(decision, options)
    except Exception:
        _log.exception("a decision could not be written")
        answer = FAILED
    respond(answer)


def _take_secret(call: Incoming, access: Access) -> bool:
    """False where it is not there."""
    if (headers := access.without_secret(call.headers)) is None:
        return False
    call.headers = headers
    return True


def _dialect(call: Incoming) -> Dialect | None:
    """The proxy's dialect. Of the target is left what is the client's own, where the path has it."""
    target = call.target
    if target.startswith(envoy.PATH):
        call.target = target[len(envoy.PATH) :]
        return ENVOY
    return PROXIES.get(target.partition("?")[0])


def _pinned_dialect(call: Incoming) -> Dialect | None:
    """The same for a path that begins with a client."""
    if not (call.target.startswith("/clients/") and (pinned := _PINNED.fullmatch(call.target))):
        return None
    call.client_id, call.target = pinned.groups()
    return _dialect(call)


_HEALTHY = Answer.of(200, {"Content-Type": "application/json"}, b'{"status": "ok"}')
_NOTHING = error_answer(404, "nothing is served at this path; Envoy needs path_prefix: /authz")
