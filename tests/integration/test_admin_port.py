"""The admin port of a real sidecar: the API document's calls field for field, and what they change."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sidecar_process import SidecarProcess

POLICY: dict[str, Any] = {
    "route": "/api/videos",
    "method": "GET",
    "identifier_type": "session_id",
    "algorithm": "sliding_window",
    "limit": 100,
    "window_seconds": 60,
}
SHARED = {"route": "/shared", "identifier_type": "none", "limit": 5, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "clients": [
        {"id": "in-file", "name": "Of the file", "hosts": ["file.example"], "rules": [{"id": "f", **SHARED}]}
    ],
}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
MISSING = "no-such-client"


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


@pytest.fixture
def client(sidecar: SidecarProcess, request: pytest.FixtureRequest) -> str:
    """A client of this test's own that the API made."""
    name = re.sub("[^A-Za-z0-9._-]", "-", request.node.name)[-64:]
    assert sidecar.admin("POST", "/v1/clients", {"id": name}).status == 201
    return name


def add(sidecar: SidecarProcess, client: str, **fields: Any) -> Any:
    reply = sidecar.admin("POST", f"/v1/clients/{client}/policies", {**POLICY, **fields})
    assert reply.status == 201, reply
    return reply.json


def state(sidecar: SidecarProcess, client: str, query: str = "") -> list[Any]:
    """The counts of a client's rules."""
    reply = sidecar.admin("GET", f"/v1/clients/{client}/state{query}")
    assert reply.status == 200, reply
    return [rule["current_count"] for rule in reply.json["rules"]]


def test_a_client_is_created_as_the_document_says(sidecar: SidecarProcess) -> None:
    """201 with these fields; more may follow."""
    reply = sidecar.admin("POST", "/v1/clients", {"id": "mon-service", "name": "Mon Service Backend"})
    assert (reply.status, reply.headers["content-type"]) == (201, "application/json")
    assert reply.headers["location"] == "/v1/clients/mon-service"
    created = reply.json
    assert MOMENT.fullmatch(created["created_at"])
    named = {name: created[name] for name in ("id", "name", "rules", "source")}
    assert named == {"id": "mon-service", "name": "Mon Service Backend", "rules": [], "source": "api"}
    again = sidecar.admin("GET", "/v1/clients/mon-service")
    assert (again.status, again.json) == (200, created)


def test_a_policy_is_created_as_the_document_says(sidecar: SidecarProcess, client: str) -> None:
    """201 with these fields and an id that was made for it; then the client has it."""
    policy = add(sidecar, client)
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", policy["id"])
    assert {name: policy[name] for name in ("id", *POLICY, "burst")} == {
        **POLICY,
        "id": policy["id"],
        "burst": None,
    }
    assert sidecar.admin("GET", f"/v1/clients/{client}").json["rules"] == [policy]


def test_policies_and_clients_are_deleted_with_204_and_then_unknown(
    sidecar: SidecarProcess, client: str
) -> None:
    """An empty answer; the second time it is a 404."""
    policy = add(sidecar, client)["id"]
    for path in (f"/v1/clients/{client}/policies/{policy}", f"/v1/clients/{client}"):
        reply = sidecar.admin("DELETE", path)
        assert (reply.status, reply.body) == (204, b"")
        assert sidecar.admin("DELETE", path).status == 404
    assert sidecar.admin("GET", f"/v1/clients/{client}").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/clients/{MISSING}"),
        ("DELETE", f"/v1/clients/{MISSING}"),
        ("POST", f"/v1/clients/{MISSING}/policies"),
        ("DELETE", f"/v1/clients/{MISSING}/policies/x"),
        ("GET", f"/v1/clients/{MISSING}/state"),
        ("GET", "/v1/clients/%2e%2e/state"),
        ("GET", "/v2/clients"),
        ("GET", "/v1/evaluate"),
    ],
)
def test_what_is_not_there_is_a_404(sidecar: SidecarProcess, method: str, path: str) -> None:
    """As problem+json, the router's own too."""
    reply = sidecar.admin(method, path, POLICY if method == "POST" else None)
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    assert (reply.json["status"], reply.json["title"]) == (404, "Not Found")


def test_another_method_is_a_405_that_names_those_there_are(sidecar: SidecarProcess, client: str) -> None:
    """As problem+json too."""
    reply = sidecar.admin("PROPFIND", f"/v1/clients/{client}")
    assert (reply.status, reply.headers["content-type"]) == (405, "application/problem+json")
    assert {"GET", "DELETE"} <= set(re.split(", ?", reply.headers["allow"]))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"id=x"])
@pytest.mark.parametrize("path", ["/v1/clients", "/v1/clients/in-file/policies"])
def test_a_body_that_is_no_json_object_is_a_400(sidecar: SidecarProcess, path: str, body: bytes) -> None:
    """Said before anything else about it."""
    reply = sidecar.admin("POST", path, body)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"id"}),
        ({"id": "a b"}, {"id"}),
        ({"id": "x" * 65}, {"id"}),
        ({"id": 7, "name": 7, "rules": {}, "extra": 1}, {"id", "name", "rules", "extra"}),
        ({"id": "ok", "hosts": ["a b", "ok.example", "host:80"]}, {"hosts.0", "hosts.2"}),
        ({"id": "ok", "rules": [{**POLICY, "limit": 0}]}, {"rules.0.limit"}),
        ({"id": "ok", "rules": [POLICY, POLICY]}, {"rules"}),
        ({"id": "ok", "exempt_ips": ["10.0.0.0/33"]}, {"exempt_ips.0"}),
        (
            {"id": "a b", "rules": [{"route": "x"}]},
            {"id", *(f"rules.0.{name}" for name in ("route", "identifier_type", "limit", "window_seconds"))},
        ),
    ],
)
def test_a_wrong_client_is_a_422_that_names_each_field(
    sidecar: SidecarProcess, body: dict[str, Any], fields: set[str]
) -> None:
    """And nothing of it is there afterwards."""
    reply = sidecar.admin("POST", "/v1/clients", body)
    assert (reply.status, reply.headers["content-type"]) == (422, "application/problem+json")
    assert {error["field"] for error in reply.json["errors"]} == fields
    assert sidecar.admin("GET", "/v1/clients/ok").status == 404


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"limit": 0}, {"limit"}),
        ({"limit": "100"}, {"limit"}),
        ({"limit": 1.5}, {"limit"}),
        ({"limit": True}, {"limit"}),
        ({"limit": None}, {"limit"}),
        ({"limit": 100_001}, {"limit"}),
        ({"window_seconds": 0}, {"window_seconds"}),
        ({"window_seconds": 366 * 24 * 3600}, {"window_seconds"}),
        ({"route": "api"}, {"route"}),
        ({"route": "/a*b"}, {"route"}),
        ({"method": "get"}, {"method"}),
        ({"identifier_type": "session"}, {"identifier_type"}),
        ({"algorithm": "leaky"}, {"algorithm"}),
        ({"burst": 5}, {"burst"}),
        ({"id": "a/b"}, {"id"}),
        ({"limits": 5}, {"limits"}),
        ({"route": 7, "method": 7, "limit": "x"}, {"route", "method", "limit"}),
    ],
)
def test_a_wrong_policy_is_a_422_that_names_each_field(
    sidecar: SidecarProcess, client: str, changes: dict[str, Any], fields: set[str]
) -> None:
    """And the client has no rule afterwards."""
    reply = sidecar.admin("POST", f"/v1/clients/{client}/policies", {**POLICY, **changes})
    assert (reply.status, reply.headers["content-type"]) == (422, "application/problem+json")
    assert {error["field"] for error in reply.json["errors"]} == fields
    assert sidecar.admin("GET", f"/v1/clients/{client}").json["rules"] == []


def test_a_client_that_exists_is_a_409(sidecar: SidecarProcess, client: str) -> None:
    """Made by the API or by a file; it stays as it is."""
    assert sidecar.admin("POST", "/v1/clients", {"id": client, "name": "new"}).status == 409
    assert sidecar.admin("GET", f"/v1/clients/{client}").json["name"] == ""
    assert sidecar.admin("POST", "/v1/clients", {"id": "in-file"}).status == 409


def test_a_host_of_another_client_is_a_409_that_names_both(sidecar: SidecarProcess) -> None:
    """A host has one client; case and a final dot make no other host."""
    reply = sidecar.admin("POST", "/v1/clients", {"id": "thief", "hosts": ["new.example", "FILE.example."]})
    assert reply.status == 409
    assert "file.example" in reply.json["detail"]
    assert "in-file" in reply.json["detail"]
    assert sidecar.admin("GET", "/v1/clients/thief").status == 404


def test_the_same_policy_twice_is_a_409_that_asks_for_an_id(sidecar: SidecarProcess, client: str) -> None:
    """With an id of its own it is another rule, counted apart; the id cannot stand twice either."""
    first = add(sidecar, client)
    same = sidecar.admin("POST", f"/v1/clients/{client}/policies", {**POLICY, "limit": 50})
    assert same.status == 409
    assert "id of its own" in same.json["detail"]
    second = add(sidecar, client, id="second")
    assert sidecar.admin("POST", f"/v1/clients/{client}/policies", {**POLICY, "id": "second"}).status == 409
    assert sidecar.admin("GET", f"/v1/clients/{client}").json["rules"] == [first, second]


def test_a_client_of_a_file_is_deleted_there(sidecar: SidecarProcess) -> None:
    """The API says which file; the client says that it is a file's."""
    known = sidecar.admin("GET", "/v1/clients/in-file").json
    assert (known["source"], known["name"]) == ("file", "Of the file")
    assert MOMENT.fullmatch(known["created_at"])
    reply = sidecar.admin("DELETE", "/v1/clients/in-file")
    assert reply.status == 409
    assert str(sidecar.file) in reply.json["detail"]
    assert sidecar.admin("GET", "/v1/clients/in-file").json == known


def test_a_change_is_in_force_for_the_very_next_request(sidecar: SidecarProcess, client: str) -> None:
    """A policy, its deletion and the client's."""
    target = f"/clients/{client}/authz/api/videos"
    assert "x-ratelimit-limit" not in sidecar.ask("GET", target).headers
    for limit in (1, 2, 3):
        policy = add(sidecar, client, limit=limit)["id"]
        assert sidecar.ask("GET", target).headers["x-ratelimit-limit"] == str(limit)
        assert sidecar.admin("DELETE", f"/v1/clients/{client}/policies/{policy}").status == 204
        assert "x-ratelimit-limit" not in sidecar.ask("GET", target).headers
    evaluated = {"route": "/", "method": "GET", "identifier": {"type": "none"}}
    assert sidecar.evaluate(client_id=client, **evaluated).status == 200
    assert sidecar.admin("DELETE", f"/v1/clients/{client}").status == 204
    assert sidecar.evaluate(client_id=client, **evaluated).status == 404


def test_fifty_policies_created_at_once_are_all_there(sidecar: SidecarProcess, client: str) -> None:
    """None is lost to another's change."""
    with ThreadPoolExecutor(50) as pool:
        made = list(pool.map(lambda n: add(sidecar, client, id=f"p{n}", route=f"/{n}"), range(50)))
    rules = sidecar.admin("GET", f"/v1/clients/{client}").json["rules"]
    assert sorted(rule["id"] for rule in rules) == sorted(rule["id"] for rule in made)
    assert len(rules) == 50
