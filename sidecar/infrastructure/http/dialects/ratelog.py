"""`POST /rate/check` and `GET /rate/status`: a user and an endpoint, named by the caller itself."""

import json
from typing import Annotated, Any
from urllib.parse import parse_qs

from pydantic import AfterValidator

from sidecar.application.user_rates import (
    MAX_USER,
    UserEndpoint,
    endpoint_problem,
    one_endpoint,
    user_number,
)
from sidecar.domain.decision import Decision, Reason
from sidecar.infrastructure.http.headers import ResponseOptions, rate_limit_lines, retry_after
from sidecar.infrastructure.http.messages import JSON_LINE, Answer, Call, line
from sidecar.infrastructure.http.rounding import seconds
from sidecar.infrastructure.problem import CONTENT_TYPE, problem
from sidecar.infrastructure.validation import Malformed, Strict, body_reader

CHECK_PATH, STATUS_PATH = "/rate/check", "/rate/status"


def _fitting(endpoint: str) -> str:
    if found := endpoint_problem(endpoint):
        raise ValueError(found)
    return endpoint


class CheckBody(Strict):
    endpoint: Annotated[str, AfterValidator(_fitting)]


_read_body = body_reader(CheckBody)


def read_check(call: Call) -> UserEndpoint:
    """Raises `Malformed` and `Rejected`."""
    return UserEndpoint(_user(call), _read_body(call.body).endpoint)


def read_status(call: Call) -> UserEndpoint:
    """Raises `Malformed` and `InvalidValue`."""
    query = call.target.partition("?")[2]
    given = parse_qs(query, keep_blank_values=True, errors="surrogateescape")
    return UserEndpoint(_user(call), one_endpoint(given.get("endpoint", [])))


def write_check(decision: Decision, options: ResponseOptions) -> Answer:
    if _unavailable(decision):
        return _cannot_count(decision, options)
    lines = rate_limit_lines(decision, options) + JSON_LINE
    fields = _fields(decision)
    if decision.allowed:
        return Answer(200, lines, json.dumps(fields).encode())
    lines += f"Retry-After: {fields['retry_after']}\r\n"
    return Answer(429, lines, json.dumps(fields).encode())


def write_status(decision: Decision, options: ResponseOptions) -> Answer:
    """Looking is always allowed: the status of a limit that is used up is 200 too."""
    if _unavailable(decision):
        return _cannot_count(decision, options)
    lines = rate_limit_lines(decision, options) + JSON_LINE
    if decision.allowed:  # of a refusal it stands there already
        lines += "Cache-Control: no-store\r\n"
    count = decision.shown.usage.used if decision.shown else None
    return Answer(200, lines, json.dumps({**_fields(decision), "count": count}).encode())


def _user(call: Call) -> int:
    user = user_number(call.headers.get("x-user-id", ""))
    if user is None:
        raise Malformed(f"X-User-Id: expected a whole number from 1 to {MAX_USER}, in ASCII digits")
    return user


def _fields(decision: Decision) -> dict[str, Any]:
    state = decision.shown
    return {
        "status": "ok" if decision.allowed else "rate_limited",
        "limit": state.check.capacity if state else None,
        "remaining": state.remaining if state else None,
        "reset": seconds(state.usage.reset_us) if state else None,
        "retry_after": retry_after(state) if state and not decision.allowed else None,
    }


def _unavailable(decision: Decision) -> bool:
    return decision.reason is Reason.STORAGE_UNAVAILABLE and not decision.allowed


def _cannot_count(decision: Decision, options: ResponseOptions) -> Answer:
    """Neither `ok` nor `rate_limited` would be true."""
    lines = rate_limit_lines(decision, options) + line("Content-Type", CONTENT_TYPE)
    status = options.unavailable_status
    detail = "the rate limiter cannot count requests at the moment"
    return Answer(status, lines, problem(status, detail))
