"""The admin port of a real sidecar: who may do what, counts, metrics, restarts, and an absent store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import StoreServer, until
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess

HOUR = {"limit": 5, "window_seconds": 3600}
RULES = [
    {"id": "all", "route": "/all", "identifier_type": "none", **HOUR},
    {"id": "session", "route": "/session", "identifier_type": "session_id", **HOUR},
    {"id": "address", "route": "/address", "identifier_type": "ip", **HOUR},
    {"id": "both", "route": "/both", "identifier_type": ["ip", "session_id"], **HOUR},
    {"id": "free", "route": "/free", "mode": "exempt"},
]
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "clients": [{"id": "c", "rules": RULES}],
    "admin": {"failures_per_minute": 1000},
}
OPEN = [("GET", "/health", 200), ("GET", "/ready", 200), ("GET", "/metrics", 200)]
READING = [("GET", "/v1/clients/c", 200), ("HEAD", "/v1/clients/c", 200), ("GET", "/v1/clients/c/state", 200)]
CHANGING = [
    ("POST", "/v1/clients", 400),
    ("DELETE", "/v1/clients/none", 404),
    ("POST", "/v1/clients/none/policies", 400),
    ("DELETE", "/v1/clients/none/policies/none", 404),
]
#: What is not there is no way to find out anything either.
UNKNOWN = [("GET", "/", 404), ("GET", "/v1", 404), ("GET", "/health/", 404), ("GET", "//health", 404)]


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    keys = [{"name": "empty", "key": "", "role": "admin"}]
    with SidecarProcess(tmp_path_factory.mktemp("keyless"), {**CONFIG, "admin": {"keys": keys}}) as running:
        yield running


@pytest.mark.parametrize(("method", "path", "status"), OPEN)
@pytest.mark.parametrize("key", [None, "", "wrong", VIEWER, ADMIN])
def test_probes_and_prometheus_need_no_key(
    sidecar: SidecarProcess, method: str, path: str, status: int, key: str | None
) -> None:
    """And a wrong one does no harm."""
    assert sidecar.admin(method, path, key=key).status == status


@pytest.mark.parametrize(("method", "path", "status"), [*READING, *CHANGING, *UNKNOWN])
@pytest.mark.parametrize(
    "key",
    [None, "", "wrong", ADMIN[:-1], ADMIN + "x", ADMIN.upper(), f"{ADMIN},{ADMIN}", "caf\xe9", "x" * 5000],
)
def test_without_a_valid_key_everything_is_403(
    sidecar: SidecarProcess, method: str, path: str, status: int, key: str | None
) -> None:
    """Also what does not exist and what is malformed: nothing is said about it."""
    reply = sidecar.admin(method, path, b"{" if method == "POST" else None, key=key)
    assert (reply.status, reply.headers["content-type"]) == (403, "application/problem+json")


@pytest.mark.parametrize(("method", "path", "status"), [*READING, *UNKNOWN])
def test_a_viewer_reads(sidecar: SidecarProcess, method: str, path: str, status: int) -> None:
    assert sidecar.admin(method, path, key=VIEWER).status == status


@pytest.mark.parametrize(("method", "path", "status"), CHANGING)
def test_a_viewer_changes_nothing(sidecar: SidecarProcess, method: str, path: str, status: int) -> None:
    """403, and the answer names the key that may read only."""
    reply = sidecar.admin(method, path, b"{" if method == "POST" else None, key=VIEWER)
    assert reply.status == 403
    assert "watcher" in reply.json["detail"]


@pytest.mark.parametrize(("method", "path", "status"), [*READING, *CHANGING, *UNKNOWN])
def test_an_admin_reads_and_changes(sidecar: SidecarProcess, method: str, path: str, status: int) -> None:
    assert sidecar.admin(method, path, b"{" if method == "POST" else None, key=ADMIN).status == status


@pytest.mark.parametrize(("method", "path", "status"), [*READING, *CHANGING, *UNKNOWN])
@pytest.mark.parametrize("key", [None, "", ADMIN])
def test_with_no_key_configured_nobody_gets_in(
    keyless: SidecarProcess, method: str, path: str, status: int, key: str | None
) -> None:
    """An entry with an empty key is no entry, and no key fits it."""
    reply = keyless.admin(method, path, b"{" if method == "POST" else None, key=key)
    assert (reply.status, reply.headers["content-type"]) == (403, "application/problem+json")


@pytest.mark.parametrize(("method", "path", "status"), OPEN)
def test_with_no_key_configured_probes_still_work(
    keyless: SidecarProcess, method: str, path: str, status: int
) -> None:
    assert keyless.admin(method, path, key=None).status == status


@pytest.mark.parametrize("target", ["/v1/clients/c", "/metrics", "/v1/clients"])
def test_the_data_port_serves_nothing_of_this(sidecar: SidecarProcess, target: str) -> None:
    """Whoever may ask whether a request may pass, may not for that reason change the rules."""
    assert sidecar.ask("GET", target, {"X-Admin-Key": ADMIN}).status == 404


def counts(sidecar: SidecarProcess, query: str = "") -> dict[str, int | None]:
    reply = sidecar.admin("GET", f"/v1/clients/c/state{query}")
    assert (reply.status, reply.json["client_id"]) == (200, "c")
    return {rule["id"]: rule["current_count"] for rule in reply.json["rules"]}


def test_state_counts_what_is_in_use_and_charges_nothing(sidecar: SidecarProcess) -> None:
    """Of everyone together, or of whom the query names; null where that can be nobody."""
    caller = {"X-Client-IP": "192.0.2.7", "X-Session-Id": "s-1"}
    for target, times in (("/all", 2), ("/session", 3), ("/address", 1), ("/both", 4), ("/free", 1)):
        for _ in range(times):
            assert sidecar.ask("GET", f"/authz{target}", caller).status == 200
    nobody = {"all": 2, "session": None, "address": None, "both": None, "free": None}
    for _ in range(2):
        assert counts(sidecar) == nobody
    assert counts(sidecar, "?identifier=s-1") == {**nobody, "session": 3}
    assert counts(sidecar, "?identifier=192.0.2.7")["address"] == 1
    assert counts(sidecar, "?identifier=192.0.2.7%7Cs-1")["both"] == 4
    assert counts(sidecar, "?identifier=192.0.2.8%7Cs-1")["both"] == 0
    assert counts(sidecar, "?identifier=unknown")["session"] == 0


def test_state_has_the_documents_fields_for_each_rule(sidecar: SidecarProcess) -> None:
    """More may follow."""
    rule = sidecar.admin("GET", "/v1/clients/c/state").json["rules"][0]
    document = ["id", "route", "method", "identifier_type", "algorithm", "limit", "window_seconds", "burst"]
    assert [rule[name] for name in document] == ["all", "/all", "*", "none", "sliding_window", 5, 3600, None]
    assert isinstance(rule["current_count"], int)


def test_metrics_are_those_that_the_document_names(sidecar: SidecarProcess) -> None:
    """In Prometheus' own format, with the labels of what was decided."""
    sidecar.ask("GET", "/authz/metrics-test")
    sidecar.ask("GET", "/authz/free")
    sidecar.ask("GET", "/authz/all")
    reply = sidecar.admin("GET", "/metrics", key=None)
    assert reply.headers["content-type"].startswith("text/plain; version=")
    page = reply.body.decode()
    for sample in (
        'rate_limit_requests_total{client="c",reason="allowed",result="allowed",rule="all"}',
        'rate_limit_requests_total{client="c",reason="exempt",result="allowed",rule="free"}',
        'rate_limit_requests_total{client="c",reason="no_policy",result="allowed",rule=""}',
        "rate_limit_redis_latency_seconds_count",
        "rate_limit_redis_latency_seconds_bucket",
        "rate_limit_store_reachable 1.0",
        "rate_limit_store_embedded 1.0",
    ):
        assert sample in page


def test_what_the_api_made_survives_a_restart(tmp_path: Path) -> None:
    """Clients, policies with their ids, and the counters too."""
    sidecar = SidecarProcess(tmp_path, CONFIG)
    with sidecar:
        assert sidecar.admin("POST", "/v1/clients", {"id": "kept", "hosts": ["kept.example"]}).status == 201
        policy = {"route": "/*", "identifier_type": "none", **HOUR}
        assert sidecar.admin("POST", "/v1/clients/kept/policies", policy).status == 201
        before = sidecar.admin("GET", "/v1/clients/kept").json
        assert sidecar.ask("GET", "/authz/", {"Host": "kept.example"}).headers["x-ratelimit-remaining"] == "4"
    with sidecar:
        assert sidecar.admin("GET", "/v1/clients/kept").json == before
        assert sidecar.ask("GET", "/authz/", {"Host": "kept.example"}).headers["x-ratelimit-remaining"] == "3"


async def test_without_the_store_a_change_is_a_503_and_nothing_is_changed(
    valkey_binary: Path, tmp_path: Path
) -> None:
    """Neither now nor when the store is back; reading what is in force still works."""
    config = {**CONFIG, "store": {"timeout_ms": 500}}
    with StoreServer(valkey_binary, settings={"appendonly": "yes", "appendfsync": "always"}) as store:
        config["store"]["url"] = store.url
        with SidecarProcess(tmp_path, config) as sidecar:
            policy = {"route": "/x", "identifier_type": "none", **HOUR}
            assert sidecar.admin("POST", "/v1/clients", {"id": "kept", "rules": [policy]}).status == 201
            kept = sidecar.admin("GET", "/v1/clients/kept").json
            store.stop()
            for method, path, body in (
                ("POST", "/v1/clients", {"id": "new"}),
                ("POST", "/v1/clients/kept/policies", {**policy, "route": "/y"}),
                ("DELETE", f"/v1/clients/kept/policies/{kept['rules'][0]['id']}", None),
                ("DELETE", "/v1/clients/kept", None),
                ("GET", "/v1/clients/kept/state", None),
            ):
                reply = sidecar.admin(method, path, body)
                assert (reply.status, reply.headers["content-type"]) == (503, "application/problem+json")
            assert sidecar.admin("GET", "/v1/clients/kept").json == kept
            await until(lambda: sidecar.ask("GET", "/ready").body == b"degraded", "it is degraded")
            store.start()
            await until(lambda: sidecar.ask("GET", "/ready").body == b"ready", "it is ready")
            assert sidecar.admin("GET", "/v1/clients/kept").json == kept
            assert sidecar.admin("GET", "/v1/clients/new").status == 404
