"""Sidecars that are restarted while requests come, alone behind an Envoy and one after the other."""

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.envoy_process import APP_PORT, ENVOY_PORT, SIDECAR_PORT, application, envoy, require_free
from tests.faults.roaming import Answered, Roaming
from tests.parts import StoreServer, require, until
from tests.raw_http import request
from tests.replicas import replicas
from tests.sidecar_process import SidecarProcess

REPLICAS = 3
YEAR = 31_536_000
RULE = {
    "id": "r",
    "route": "/*",
    "identifier_type": "none",
    "algorithm": "fixed_window",
    "window_seconds": YEAR,
}


def config(limit: int) -> dict[str, Any]:
    """A decision without the store would be a 503."""
    return {
        "store": {"timeout_ms": 5000, "on_unavailable": "deny"},
        "default_client": "c",
        "clients": [{"id": "c", "rules": [{**RULE, "limit": limit}]}],
    }


#: As by default, which other tests do without.
LEAVING = {"listen": {"leave_seconds": 0.5}}


async def rolling(directory: Path, *, limit: int, per_second: float, rounds: int = 1) -> Answered:
    """Each replica is restarted in its turn; then it goes on until the limit is used up."""
    with (
        StoreServer(require("valkey")) as store,
        replicas(directory, {**config(limit), **LEAVING}, [store.url] * REPLICAS) as sidecars,
    ):
        load = Roaming([each.port for each in sidecars], request("GET", "/authz/x"), per_second=per_second)
        async with load:
            for _ in range(rounds):
                for each in sidecars:
                    await asyncio.to_thread(restart, each)
            await until(
                lambda: load.answered.statuses.get(429, 0) > 50,
                "the limit is used up",
                seconds=30 + limit / per_second,
            )
        return load.answered


async def draining(
    directory: Path, *, requests: int, restarts: int, per_second: float, pause_seconds: float
) -> tuple[Answered, float]:
    """Restarts behind an Envoy that asks nobody else, and for how many seconds nobody was there."""
    require_free(ENVOY_PORT, SIDECAR_PORT, APP_PORT)
    listening = {**config(10**9), "listen": {"authz": f"127.0.0.1:{SIDECAR_PORT}", **LEAVING["listen"]}}
    away = 0.0
    sidecar = SidecarProcess(directory, listening)
    with application(), sidecar, envoy(require("envoy"), directory):
        load = Roaming([ENVOY_PORT], request("GET", "/x"), per_second=per_second)
        async with load:
            for _ in range(restarts):
                await asyncio.sleep(pause_seconds)
                away += await asyncio.to_thread(restart, sidecar)
            await until(lambda: load.answered.number >= requests, "enough requests", seconds=120)
        return load.answered, away


def restart(sidecar: SidecarProcess) -> float:
    """Returns for how many seconds it was gone."""
    sidecar.stop()
    gone = time.monotonic()
    sidecar.start()
    return time.monotonic() - gone
