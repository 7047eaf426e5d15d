"""A real sidecar while its store is away: what callers, probes and operators see, and the way back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import StoreServer, until
from tests.sidecar_process import SidecarProcess
from tests.topologies import ask

RULE = {"route": "/*", "identifier_type": "none", "limit": 5, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "default_client": "open",
    "clients": [
        {"id": "open", "rules": [{"id": "allowing", **RULE}]},
        {"id": "closed", "rules": [{"id": "denying", "on_unavailable": "deny", **RULE}]},
    ],
}
EVALUATE = {"route": "/x", "method": "GET", "identifier": {"type": "none"}}
NULLS = {"limit": None, "remaining": None, "reset_at": None, "retry_after": None, "rule_id": None}


@pytest.fixture
def store(valkey_binary: Path) -> Iterator[StoreServer]:
    with StoreServer(valkey_binary) as server:
        yield server


@pytest.fixture
def sidecar(store: StoreServer, tmp_path: Path) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path, {**CONFIG, "store": {"url": store.url}}) as running:
        yield running


async def ready_is(sidecar: SidecarProcess, word: bytes, *, seconds: float = 10.0) -> None:
    await until(lambda: sidecar.ask("GET", "/ready").body == word, f"/ready says {word!r}", seconds=seconds)


def test_by_default_requests_pass_without_numbers(store: StoreServer, sidecar: SidecarProcess) -> None:
    """Through a proxy and through evaluate; none are invented."""
    assert sidecar.ask("GET", "/authz/x").headers["x-ratelimit-remaining"] == "4"
    store.stop()
    reply = sidecar.ask("GET", "/authz/x")
    assert (reply.status, reply.body) == (200, b"")
    said = {n: v for n, v in reply.headers.items() if n.startswith(("x-ratelimit", "retry"))}
    assert said == {"x-ratelimit-degraded": "storage_unavailable"}
    evaluated = sidecar.evaluate(client_id="open", **EVALUATE)
    assert evaluated.status == 200
    assert evaluated.json == {"allowed": True, **NULLS, "reason": "storage_unavailable"}


def test_a_rule_that_denies_answers_503(store: StoreServer, sidecar: SidecarProcess) -> None:
    """Never 429: nobody's limit is used up."""
    store.stop()
    reply = sidecar.ask("GET", "/clients/closed/authz/x")
    assert (reply.status, reply.headers["x-ratelimit-rule"]) == (503, "denying")
    assert (reply.headers["content-type"], "retry-after" in reply.headers) == (
        "application/problem+json",
        False,
    )
    evaluated = sidecar.evaluate(client_id="closed", **EVALUATE)
    assert evaluated.status == 503
    assert evaluated.json == {"allowed": False, **NULLS, "reason": "storage_unavailable"}


async def test_ready_is_degraded_while_the_store_is_away(store: StoreServer, sidecar: SidecarProcess) -> None:
    """On both ports with 200, so that no replica is taken out; metric and log say it too."""
    store.stop()
    await ready_is(sidecar, b"degraded")
    assert sidecar.ask("GET", "/ready").status == 200
    admin = sidecar.admin("GET", "/ready", key=None)
    assert (admin.status, admin.body) == (200, b"degraded")
    metrics = sidecar.admin("GET", "/metrics", key=None).body.decode()
    assert "rate_limit_store_reachable 0.0" in metrics
    assert len(sidecar.logged("the store is away")) == 1
    assert sidecar.ask("GET", "/health").status == 200


async def test_counting_goes_on_within_two_seconds_of_the_stores_return(
    store: StoreServer, sidecar: SidecarProcess
) -> None:
    """Without a restart of the sidecar."""
    store.stop()
    await ready_is(sidecar, b"degraded")
    store.start()
    await until(
        lambda: "x-ratelimit-remaining" in sidecar.ask("GET", "/authz/x").headers, "it counts", seconds=2
    )
    await ready_is(sidecar, b"ready", seconds=2)


async def test_a_sidecar_that_starts_without_its_store_serves_and_counts_later(
    store: StoreServer, tmp_path: Path
) -> None:
    """The order in which things start must not matter."""
    sidecar = SidecarProcess(tmp_path, {**CONFIG, "store": {"url": store.url, "timeout_ms": 500}})
    store.stop()
    sidecar.start(ready=b"degraded")
    try:
        assert sidecar.ask("GET", "/authz/x").status == 200
        store.start()
        await ready_is(sidecar, b"ready")
        assert sidecar.ask("GET", "/authz/x").headers["x-ratelimit-remaining"] == "4"
        sidecar.stop()
    finally:
        sidecar.kill()


def test_a_patience_of_more_than_a_second_is_kept(store: StoreServer, tmp_path: Path) -> None:
    """`timeout_ms` is what a decision may wait, whatever else is given up sooner."""
    with SidecarProcess(tmp_path, {**CONFIG, "store": {"url": store.url, "timeout_ms": 30_000}}) as sidecar:
        sidecar.ask("GET", "/authz/x")
        ask(store, "CLIENT", "PAUSE", 1200)
        assert sidecar.ask("GET", "/authz/x").headers["x-ratelimit-remaining"] == "3"
