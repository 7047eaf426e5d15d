"""Answers that are the front's own: none is a decision."""

import logging

from sidecar.infrastructure.http.messages import Answer, Incoming
from sidecar.infrastructure.problem import CONTENT_TYPE, problem

_log = logging.getLogger("sidecar.http")


def error_answer(status: int, detail: str, **headers: str) -> Answer:
    return Answer.of(status, {"Content-Type": CONTENT_TYPE, **headers}, problem(status, detail))


MALFORMED = error_answer(400, "the request is no valid HTTP")
FAILED = error_answer(500, "the sidecar failed on this request")


def failed(call: Incoming) -> Answer:
    """To be called where the failure is known: it is logged, and the connection ends."""
    _log.exception("a request failed")
    call.keep_alive = False
    return FAILED
