"""A whole sidecar on a cluster and on sentinels: limits, changes, a lost primary, and a quiet end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import until
from tests.replicas import done, limit_of
from tests.sidecar_process import SidecarProcess
from tests.topologies import ClusterServers, SentinelServers

RULE = {"id": "r", "route": "/*", "identifier_type": "none", "limit": 5, "window_seconds": 31_536_000}
CONFIG: dict[str, Any] = {"default_client": "file", "clients": [{"id": "file", "rules": [RULE]}]}
Servers = ClusterServers | SentinelServers


@pytest.fixture(params=["cluster", "sentinel"])
def servers(request: pytest.FixtureRequest, valkey_binary: Path) -> Iterator[Servers]:
    """Not started."""
    made: Servers = (
        ClusterServers(valkey_binary) if request.param == "cluster" else SentinelServers(valkey_binary)
    )
    try:
        yield made
    finally:
        made.remove()


async def test_a_sidecar_begins_without_its_servers_and_outlives_a_primary(
    servers: Servers, tmp_path: Path
) -> None:
    """Away at first, then counting, changed by the API, counting on after a failover; ended without any."""
    sidecar = SidecarProcess(tmp_path, {**CONFIG, "store": {"url": servers.url, "timeout_ms": 1000}})
    sidecar.start(ready=b"degraded")
    try:
        assert sidecar.ask("GET", "/authz/x").status == 200
        assert "x-ratelimit-remaining" not in sidecar.ask("GET", "/authz/x").headers
        servers.start()
        await until(lambda: ready(sidecar), "it is ready", seconds=30)
        assert [sidecar.ask("GET", "/authz/x").status for _ in range(7)] == [200] * 5 + [429] * 2
        made = {"id": "made", "hosts": ["made.example"], "rules": [{**RULE, "limit": 7}]}
        done(sidecar.admin("POST", "/v1/clients", made), 201)
        assert limit_of(sidecar, host="made.example") == 7
        primary_of(servers, "file").stop()
        await until(lambda: counted(sidecar, 429), "the replica counts", seconds=30)
        await until(lambda: ready(sidecar), "it is ready", seconds=30)
        await until(lambda: limit_of(sidecar, host="made.example") == 7, "the client is there", seconds=30)
        done(sidecar.admin("DELETE", "/v1/clients/made"), 204)
        for server in servers.servers:
            server.stop()
        await until(lambda: not ready(sidecar), "it notices", seconds=30)
        assert {sidecar.ask("GET", "/authz/x").status for _ in range(20)} == {200}
        sidecar.stop()  # with nothing in its log of connections that nobody closed
        assert "never retrieved" not in sidecar.log
    finally:
        sidecar.kill()


def primary_of(servers: Servers, client: str) -> Any:
    return servers.primary_of(client) if isinstance(servers, ClusterServers) else servers.current()


def ready(sidecar: SidecarProcess) -> bool:
    return sidecar.ask("GET", "/ready").body == b"ready"


def counted(sidecar: SidecarProcess, status: int) -> bool:
    """Whether the store decides, and so."""
    return sidecar.ask("GET", "/authz/x").status == status
