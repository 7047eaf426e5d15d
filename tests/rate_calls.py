"""Calls of the per-user, per-endpoint API, for tests of a running sidecar."""

import itertools
import json
from typing import Any
from urllib.parse import quote

from tests.raw_http import Reply
from tests.sidecar_process import ADMIN, SidecarProcess

PROBLEM = "application/problem+json"
_users = itertools.count(1000)


def new_user() -> str:
    """One that no other test has."""
    return str(next(_users))


def check(sidecar: SidecarProcess, user: str | None, endpoint: Any = "/api/videos") -> Reply:
    return check_body(sidecar, user, json.dumps({"endpoint": endpoint}).encode())


def check_body(sidecar: SidecarProcess, user: str | None, body: bytes | None) -> Reply:
    headers = {"Content-Type": "application/json"} | ({} if user is None else {"X-User-Id": user})
    return sidecar.ask("POST", "/rate/check", headers, body)


def status(sidecar: SidecarProcess, user: str, endpoint: str = "/api/videos") -> Reply:
    return sidecar.ask("GET", f"/rate/status?endpoint={quote(endpoint, safe='')}", {"X-User-Id": user})


def count(sidecar: SidecarProcess, user: str, endpoint: str = "/api/videos") -> int:
    reply = status(sidecar, user, endpoint)
    assert reply.status == 200, reply
    number: int = reply.json["count"]
    return number


def reset(sidecar: SidecarProcess, user: str, query: str = "", *, key: str | None = ADMIN) -> Reply:
    return sidecar.admin("DELETE", f"/rate/reset/{user}{query}", key=key)


def assert_names_endpoint(reply: Reply) -> None:
    assert (reply.status, reply.headers["content-type"]) == (422, PROBLEM)
    assert [error["field"] for error in reply.json["errors"]] == ["endpoint"]
