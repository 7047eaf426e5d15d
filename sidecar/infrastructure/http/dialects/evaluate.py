"""`POST /v1/evaluate`: the JSON API for callers that are no proxy."""

import json
from typing import Any

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.described import DescribedBody, EvaluateBody, described_request
from sidecar.infrastructure.http.headers import (
    ResponseOptions,
    rate_limit_lines,
    reason_status,
    reset_at,
    retry_after,
)
from sidecar.infrastructure.http.messages import JSON_LINE, Answer
from sidecar.infrastructure.validation import body_reader

PATH = "/v1/evaluate"
_WITHOUT_NUMBERS = (Reason.NO_POLICY, Reason.EXEMPT, Reason.STORAGE_UNAVAILABLE, Reason.ENFORCEMENT_OFF)

_read_body = body_reader(EvaluateBody)
_read_described = body_reader(DescribedBody)


def read(body: bytes, request_id: str) -> RequestMetadata:
    """Raises `Malformed` and `Rejected`."""
    return described_request(_read_body(body), request_id)


def read_described(body: bytes) -> RequestMetadata:
    """Raises `Malformed` and `Rejected`."""
    return described_request(_read_described(body), "")


def write(decision: Decision, options: ResponseOptions) -> Answer:
    status = 200 if decision.allowed else reason_status(decision.reason, options)
    lines = rate_limit_lines(decision, options) + JSON_LINE
    fields = _fields(decision)
    if fields["retry_after"] is not None:
        lines += f"Retry-After: {fields['retry_after']}\r\n"
    return Answer(status, lines, json.dumps(fields).encode())


def _fields(decision: Decision) -> dict[str, Any]:
    state = decision.shown
    return {
        "allowed": decision.allowed,
        "limit": state.check.capacity if state else None,
        "remaining": state.remaining if state else None,
        "reset_at": reset_at(decision),
        "retry_after": retry_after(state) if state and not decision.allowed else None,
        "rule_id": None if decision.reason in _WITHOUT_NUMBERS else decision.rule_id,
        "reason": decision.reason,
    }
