"""Changing what there is on the admin port of a real sidecar: overrides, lost races, paging, resets."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.raw_http import Reply, ask
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess

SHARED: dict[str, Any] = {"route": "/shared", "identifier_type": "none", "limit": 5, "window_seconds": 3600}
USERS = {**SHARED, "route": "/users", "identifier_type": "user_id", "overrides": {"vip": 50}}
CONFIG: dict[str, Any] = {
    "clients": [
        {"id": "in-file", "name": "Of the file", "hosts": ["file.example"], "rules": [{"id": "f", **SHARED}]}
    ],
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


@pytest.fixture
def client(sidecar: SidecarProcess, request: pytest.FixtureRequest) -> str:
    """The path of a client of this test's own, with a rule for everyone and one for each user."""
    name = re.sub("[^A-Za-z0-9._-]", "-", request.node.name)[-64:]
    rules = [{"id": "all", **SHARED}, {"id": "users", **USERS}]
    assert sidecar.admin("POST", "/v1/clients", {"id": name, "rules": rules}).status == 201
    return f"/v1/clients/{name}"


def remaining(sidecar: SidecarProcess, client: str, target: str, user: str = "") -> int:
    """After one more request of that user."""
    path = client.removeprefix("/v1")
    reply = sidecar.ask("GET", f"{path}/authz{target}", {"X-User-Id": user})
    return int(reply.headers["x-ratelimit-remaining"])


def changed(sidecar: SidecarProcess, method: str, path: str, if_match: str, body: str = "{}") -> Reply:
    headers = {"X-Admin-Key": ADMIN, "If-Match": if_match}
    return ask(sidecar.admin_port, method, path, headers, body.encode())


def test_a_changed_client_of_a_file_is_an_override_until_it_is_deleted(sidecar: SidecarProcess) -> None:
    """In force at once; then the file's version is back as it was."""
    path = "/v1/clients/in-file"
    of_file = sidecar.admin("GET", path).json
    changes = [
        ("PATCH", path, {"name": "Patched"}),
        ("PUT", path, {**{name: of_file[name] for name in ("id", "hosts", "rules")}, "name": "Put"}),
        ("POST", f"{path}/policies", {"id": "more", **SHARED, "limit": 2}),
        ("PATCH", f"{path}/policies/f", {"limit": 3}),
        ("PUT", f"{path}/policies/f", {**SHARED, "limit": 4}),
        ("DELETE", f"{path}/policies/f", None),
    ]
    for method, target, body in changes:
        assert sidecar.admin(method, target, body).status in (200, 201, 204)
        known = sidecar.admin("GET", path).json
        assert (known["source"], known != of_file) == ("override", True)
        assert sidecar.admin("DELETE", path).status == 204
        assert sidecar.admin("GET", path).json == of_file
    assert sidecar.admin("DELETE", path).status == 409


def test_a_client_is_spread_by_identifier_only_while_all_its_policies_count_the_same(
    sidecar: SidecarProcess, client: str
) -> None:
    """Else a 422 that names the field and both; spread, its counters are new, a shard in their keys."""
    assert remaining(sidecar, client, "/users", "ann") == 4
    refused = sidecar.admin("PATCH", client, {"shard_by": "identifier"})
    assert (refused.status, [one["field"] for one in refused.json["errors"]]) == (422, ["shard_by"])
    assert "'all' (/shared)" in refused.json["detail"] + refused.json["errors"][0]["message"]
    assert sidecar.admin("DELETE", f"{client}/policies/all").status == 204
    assert sidecar.admin("PATCH", client, {"shard_by": "identifier"}).json["shard_by"] == "identifier"
    assert remaining(sidecar, client, "/users", "ann") == 4
    refused = sidecar.admin("POST", f"{client}/policies", {"id": "all", **SHARED})
    assert (refused.status, [one["field"] for one in refused.json["errors"]]) == (422, ["shard_by"])
    name = client.rpartition("/")[2]
    asked = {"client_id": name, "route": "/users", "identifier": {"type": "user_id", "user_id": "ann"}}
    (explained,) = sidecar.admin("POST", "/v1/explain", asked).json["rules"]
    assert f"{{{name}/01}}" in explained["counter"]["key"]
    assert sidecar.admin("DELETE", f"{client}/counters?identifier=ann").json == {"deleted": 1}


def test_a_client_is_replaced_whole_and_changed_in_part(sidecar: SidecarProcess, client: str) -> None:
    """PUT makes it if it is not there; PATCH is a merge in which null takes away."""
    assert sidecar.admin("PATCH", client, {"name": "N", "hosts": ["n.example"]}).json["name"] == "N"
    patched = sidecar.admin("PATCH", client, {"hosts": None}).json
    assert (patched["name"], patched["hosts"], len(patched["rules"])) == ("N", [], 2)
    put = sidecar.admin("PUT", client, {"name": "P"}).json
    assert (put["name"], put["rules"], put["source"]) == ("P", [], "api")
    assert sidecar.admin("PUT", client, {"id": "other"}).status == 422
    assert sidecar.admin("DELETE", client).status == 204
    assert sidecar.admin("PATCH", client, {"name": "N"}).status == 404
    assert sidecar.admin("PUT", client, {"name": "P"}).status in (200, 201)


def test_a_policy_is_replaced_whole_and_changed_in_part(sidecar: SidecarProcess, client: str) -> None:
    """Its id stays, its counters too, and what is wrong changes nothing."""
    assert remaining(sidecar, client, "/shared") == 4
    policy = f"{client}/policies/all"
    assert sidecar.admin("PATCH", policy, {"limit": 9}).json["limit"] == 9
    assert remaining(sidecar, client, "/shared") == 7
    assert sidecar.admin("PUT", policy, {**SHARED, "limit": 6}).json["id"] == "all"
    assert remaining(sidecar, client, "/shared") == 3
    for method, body, status in (
        ("PATCH", {"limit": 0}, 422),
        ("PATCH", {"limit": None}, 422),
        ("PUT", {**SHARED, "id": "other"}, 422),
        ("PUT", {}, 422),
        ("PATCH", b"[]", 400),
    ):
        assert sidecar.admin(method, policy, body).status == status
    assert sidecar.admin("GET", policy).json["limit"] == 6
    assert sidecar.admin("PATCH", f"{client}/policies/none", {}).status == 404


def test_a_change_of_what_has_changed_meanwhile_is_a_412(sidecar: SidecarProcess, client: str) -> None:
    """Whoever says which state was seen overwrites no other; `*` stands for any."""
    seen = sidecar.admin("GET", client).headers["etag"]
    assert sidecar.admin("GET", f"{client}/policies/all").headers["etag"] == seen
    assert changed(sidecar, "PATCH", client, seen, '{"name": "first"}').status == 200
    for method, path in (
        ("PATCH", client),
        ("PUT", client),
        ("PATCH", f"{client}/policies/all"),
        ("DELETE", f"{client}/policies/all"),
        ("DELETE", client),
    ):
        reply = changed(sidecar, method, path, seen)
        assert (reply.status, reply.headers["content-type"]) == (412, "application/problem+json")
    assert sidecar.admin("GET", client).json["name"] == "first"
    assert changed(sidecar, "PATCH", client, "*", '{"name": "any"}').status == 200
    again = sidecar.admin("GET", client).headers["etag"]
    assert changed(sidecar, "DELETE", client, again).status == 204


def test_clients_and_policies_are_listed_in_pages(sidecar: SidecarProcess, client: str) -> None:
    """Each once, in order; `next` is where to go on."""
    for kind, path in (("clients", "/v1/clients"), ("policies", f"{client}/policies")):
        whole = sidecar.admin("GET", f"{path}?limit=1000").json
        assert whole["next"] is None
        paged: list[Any] = []
        after: str | None = ""
        while after is not None:
            page = sidecar.admin("GET", f"{path}?limit=1{after and '&after='}{after}").json
            paged += page[kind]
            after = page["next"]
        assert paged == whole[kind]
        for wrong in ("limit=0", "limit=1001", "limit=x", "limit=-1"):
            assert sidecar.admin("GET", f"{path}?{wrong}").status == 422


def test_identifiers_and_the_busiest_of_a_policy_are_told(sidecar: SidecarProcess, client: str) -> None:
    """With the units that they use; a viewer may look."""
    for user, times in (("ann", 2), ("bob", 4), ("vip", 7)):
        for _ in range(times):
            remaining(sidecar, client, "/users", user)
    found: dict[str, int] = {}
    cursor: str | None = "0"
    while cursor is not None:
        page = sidecar.admin("GET", f"{client}/policies/users/identifiers?cursor={cursor}", key=VIEWER).json
        found |= {one["identifier"]: one["count"] for one in page["identifiers"]}
        cursor = page["next"]
    assert found == {"ann": 2, "bob": 4, "vip": 7}
    busiest = sidecar.admin("GET", f"{client}/policies/users/busiest?limit=2", key=VIEWER).json
    assert [one["identifier"] for one in busiest["identifiers"]] == ["vip", "bob"]
    assert (busiest["looked_at"], busiest["complete"]) == (3, True)
    assert sidecar.admin("GET", f"{client}/policies/none/busiest").status == 404


def test_counters_are_reset_for_one_identifier_a_policy_or_all(sidecar: SidecarProcess, client: str) -> None:
    """In force for the very next request; nothing else is begun anew."""

    def count() -> tuple[int, int, int]:
        return (
            remaining(sidecar, client, "/shared"),
            remaining(sidecar, client, "/users", "ann"),
            remaining(sidecar, client, "/users", "bob"),
        )

    assert count() == (4, 4, 4)
    counters = f"{client}/counters"
    assert sidecar.admin("DELETE", f"{counters}?identifier=ann").json == {"deleted": 1}
    assert count() == (3, 4, 3)
    assert sidecar.admin("DELETE", f"{counters}?policy=users&identifier=nobody").json == {"deleted": 0}
    assert sidecar.admin("DELETE", f"{counters}?policy=users").status == 200
    assert count() == (2, 4, 4)
    assert sidecar.admin("DELETE", counters).status == 200
    assert count() == (4, 4, 4)
    assert sidecar.admin("DELETE", f"{counters}?identifier=").status == 422
    assert sidecar.admin("DELETE", f"{counters}?policy=none").status == 404
    assert sidecar.admin("DELETE", counters, key=VIEWER).status == 403
    assert count() == (3, 3, 3)
