"""Requests read and answers written, alike for all routes of the admin port."""

import json
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.application.known_clients import ChangedMeanwhile, Conflict, NotFound
from sidecar.application.pieces import in_pieces, in_thread
from sidecar.application.ports import StoreUnavailable
from sidecar.application.searching import TooManySearches
from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.problem import CONTENT_TYPE, invalid_fields, problem
from sidecar.infrastructure.validation import Malformed, Rejected

_ENCODER = json.JSONEncoder()
_log = logging.getLogger("sidecar.admin")


def json_answer(status: int, body: Any, **headers: str) -> web.Response:
    headers["Content-Type"] = "application/json"
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers)


async def long_answer(status: int, make: Callable[[], Any]) -> web.Response:
    """In a thread, and in pieces: of thousands of clients, and decisions are to go on."""
    body = await in_thread(lambda: "".join(in_pieces(_ENCODER.iterencode(make()))).encode())
    return web.Response(status=status, body=body, headers={"Content-Type": "application/json"})


def problem_answer(status: int, detail: str, **headers: str) -> web.Response:
    body = problem(status, detail)
    return web.Response(status=status, body=body, headers={"Content-Type": CONTENT_TYPE, **headers})


def integer_query(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query; raises `Rejected` naming it."""
    written = request.query.get(name, str(default))
    if not (written.isascii() and written.isdigit() and len(written) <= 21 and least <= int(written) <= most):
        raise Rejected([((name,), f"expected a whole number from {least} to {most}")])
    return int(written)


def json_object(text: bytes) -> dict[str, Any]:
    """The body as a JSON object; raises `Malformed`."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed("expected a JSON object") from error
    if not isinstance(body, dict):
        raise Malformed("expected a JSON object")
    return body


def merged(target: Any, patch: Any) -> Any:
    """JSON Merge Patch (RFC 7396): objects are merged, `null` deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@web.middleware
async def as_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns what went wrong into problem+json; nothing was changed then."""
    try:
        return await handler(request)
    except Malformed as error:
        return problem_answer(400, str(error))
    except (Rejected, InvalidValue) as error:
        body = invalid_fields(error.problems)
        return web.Response(status=422, body=body, headers={"Content-Type": CONTENT_TYPE})
    except NotFound as error:
        return problem_answer(404, str(error))
    except Conflict as error:
        return problem_answer(409, str(error))
    except ChangedMeanwhile as error:
        return problem_answer(412, str(error))
    except TooManySearches as error:
        return problem_answer(503, str(error))
    except StoreUnavailable as error:
        _log.warning("the store is away", extra={"error": str(error)})
        return problem_answer(
            503, "the store is away; whether the change was made is said by it when it returns"
        )
    except web.HTTPException as error:
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return problem_answer(error.status, error.reason, **allow)
    except Exception:
        _log.exception("an admin request failed")
        return problem_answer(500, "the sidecar failed on this request; its log says how")
