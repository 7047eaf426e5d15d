"""Three replicas without their store, each with its share of a limit that is `local`."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.play import reason
from tests.faults.scene import AOF
from tests.parts import StoreServer, require, until
from tests.replicas import replicas
from tests.sidecar_process import SidecarProcess
from tests.steady_load import Answer, SteadyLoad

REPLICAS = 3


@dataclass(frozen=True)
class Outage:
    """What three replicas have answered while it lasted, together."""

    answers: Sequence[Answer]

    @property
    def admitted(self) -> list[float]:
        """When."""
        return sorted(a.came for a in self.answers if reason(a) == "storage_unavailable (200)")

    def most_within(self, seconds: float) -> int:
        """The most that were admitted in so many seconds."""
        times = self.admitted
        return max((sum(begin <= one < begin + seconds for one in times) for begin in times), default=0)


def config(**rule: Any) -> dict[str, Any]:
    local = {"id": "r", "route": "/*", "identifier_type": "none", **rule}
    return {
        "store": {"timeout_ms": 100, "on_unavailable": "local"},
        "rate": {"limit": 6, "window_seconds": 3600},
        "default_client": "c",
        "clients": [{"id": "c", "rules": [local]}],
    }


@contextmanager
def three(directory: Path, settings: dict[str, Any]) -> Iterator[tuple[StoreServer, list[SidecarProcess]]]:
    """Replicas that know of each other, and their store."""
    with (
        StoreServer(require("valkey"), settings=AOF) as store,
        replicas(directory, settings, [store.url] * REPLICAS) as sidecars,
    ):
        asyncio.run(_acquainted(sidecars))
        yield store, sidecars


async def _acquainted(sidecars: Sequence[SidecarProcess]) -> None:
    for each in sidecars:
        await until(lambda each=each: processes(each) == REPLICAS, "it knows of the others")  # type: ignore[misc]


def processes(sidecar: SidecarProcess) -> int:
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    (line,) = (one for one in page.splitlines() if one.startswith("rate_limit_live_processes "))
    return round(float(line.split()[1]))


async def outage(
    store: StoreServer, sidecars: Sequence[SidecarProcess], *, seconds: float, per_second: float
) -> Outage:
    """The store is killed, and started again afterwards."""
    store.stop()
    load = SteadyLoad([each.port for each in sidecars], target="/authz/x", per_second=per_second / REPLICAS)
    async with load:
        await asyncio.sleep(seconds)
    answers = [one for each in load.answers for one in each]
    store.start()
    for each in sidecars:
        await until(
            lambda each=each: each.ask("GET", "/ready").body == b"ready",  # type: ignore[misc]
            "it is ready again",
        )
    return Outage(answers)
