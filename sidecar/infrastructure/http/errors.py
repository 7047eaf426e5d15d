"""Answers that are the front's own: none is a decision."""

from sidecar.infrastructure.http.messages import Answer
from sidecar.infrastructure.problem import CONTENT_TYPE, problem


def error_answer(status: int, detail: str, **headers: str) -> Answer:
    return Answer(status, {"Content-Type": CONTENT_TYPE, **headers}, problem(status, detail))


MALFORMED = error_answer(400, "the request is no valid HTTP")
FAILED = error_answer(500, "the sidecar failed on this request")
