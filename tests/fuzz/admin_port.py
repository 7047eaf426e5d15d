"""Requests to the admin port of a real sidecar, with a key: nothing is a 500, errors are problems."""

import json
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from tests.fuzz.files import RICH
from tests.fuzz.running import Target
from tests.fuzz.texts import changed, json_values, latin, text
from tests.raw_http import Connection
from tests.sidecar_process import ADMIN, SidecarProcess

STATUSES = {200, 201, 204, 400, 403, 404, 405, 409, 412, 413, 417, 422}
CONFIG: dict[str, Any] = {"default_client": "a", "clients": RICH["clients"]}
_CLIENT = RICH["clients"][0]
_DESCRIBED = {
    "client_id": "a",
    "route": "/x",
    "method": "GET",
    "identifier": {"type": "ip", "ip": "192.0.2.1"},
}


def target(sidecar: SidecarProcess) -> Target:
    def holds(given: tuple[str, str, list[tuple[str, str]], bytes]) -> None:
        method, path, fields, body = given
        headers = {"X-Admin-Key": ADMIN, "Content-Type": "application/json", **dict(fields)}
        with Connection(sidecar.admin_port) as connection:
            reply = connection.ask(method, path, headers, body)
        assert reply.status in STATUSES, (given, reply)
        if reply.status >= 400 and method != "HEAD":
            assert reply.json["status"] == reply.status, (given, reply)

    return Target("admin-port", requests(), holds, slowness=2)


def requests() -> st.SearchStrategy[tuple[str, str, list[tuple[str, str]], bytes]]:
    methods = st.sampled_from(["GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND"])
    fields = st.lists(
        st.tuples(st.sampled_from(["If-Match", "X-Admin-Key", "Authorization", "Expect"]), latin(3))
    )
    return st.tuples(methods, _targets(), st.just([]) | fields, _bodies())


def _targets() -> st.SearchStrategy[str]:
    name = st.sampled_from(["a", "b", "new", ".."]) | text(3).map(_quoted)
    policy = st.sampled_from(
        ["/policies", "/policies/p", "/policies/p/identifiers", "/policies/p/busiest", "/state"]
    )
    clients = st.tuples(st.just("/v1/clients/"), name, st.sampled_from(["", "/counters"]) | policy).map(
        "".join
    )
    others = st.sampled_from(
        [
            "/v1/clients",
            "/v1/explain",
            "/v1/enforcement",
            "/v1/config",
            "/v1/reload",
            "/v1/audit",
            "/openapi.json",
        ]
    )
    users = text(3).map(lambda made: "/rate/reset/" + _quoted(made))
    parameters = st.sampled_from(["limit", "after", "skip", "cursor", "identifier", "policy", "endpoint"])
    query = st.lists(st.tuples(parameters, text(3).map(_quoted)).map("=".join), max_size=3)
    return st.tuples(
        clients | others | users, query.map(lambda made: "?" + "&".join(made) if made else "")
    ).map("".join)


def _bodies() -> st.SearchStrategy[bytes]:
    trees = changed(_CLIENT) | changed(_CLIENT["rules"][0]) | changed(_DESCRIBED) | json_values()
    return trees.map(lambda made: json.dumps(made).encode()) | st.binary(max_size=30) | st.just(b"")


def _quoted(made: str) -> str:
    return quote(made.encode("utf-8", "surrogatepass"), safe="")
