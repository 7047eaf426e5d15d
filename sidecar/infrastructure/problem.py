"""Errors as `application/problem+json` (RFC 9457), alike on both ports."""

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

CONTENT_TYPE = "application/problem+json"


def problem(status: int, detail: str, *, type_: str = "about:blank", **more: Any) -> bytes:
    """The body of an error; `more` are further members."""
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error"
    body = {"type": type_, "title": phrase, "status": status, "detail": detail, **more}
    return json.dumps(body).encode()


def invalid_fields(problems: Iterable[tuple[str, str]]) -> bytes:
    """The body of a 422 that names each field."""
    errors = [{"field": field, "message": message} for field, message in problems]
    named = ", ".join(error["field"] for error in errors)
    return problem(422, f"wrong: {named}", errors=errors)
