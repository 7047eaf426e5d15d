"""A change on one replica reaches all: by announcement, without any, and after the store was away.

The bounds are the contract's, one second and a few, with room for a busy machine; how long it really takes is
measured by `python -m tests.bench.propagation`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.parts import StoreServer, until
from tests.replicas import done, limit_of, replica, replicas
from tests.sidecar_process import SidecarProcess
from tests.steady_load import SteadyLoad
from tests.store_proxy import StoreProxy

#: In force everywhere within a second when it is announced, within a few when it is not.
ANNOUNCED_SECONDS, POLLED_SECONDS = 3, 5
HOUR = {"identifier_type": "none", "algorithm": "fixed_window", "window_seconds": 31_536_000}
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "clients": [
        {
            "id": "c",
            "rules": [
                {"id": "all", "route": "/*", "limit": 1000, **HOUR},
                {"id": "closed", "route": "/closed", "mode": "block"},
            ],
        }
    ],
}
#: Method, path and body of a change, and what the next request to `/authz/x` of the host is limited by then.
CHANGES: list[tuple[str, str, Any, str, int | None]] = [
    ("PATCH", "/v1/clients/c/policies/all", {"limit": 5}, "test.example", 5),
    ("PATCH", "/v1/clients/c/policies/all", {"limit": 900}, "test.example", 900),
    ("POST", "/v1/clients/c/policies", {"id": "x", "route": "/x", "limit": 7, **HOUR}, "test.example", 7),
    ("PUT", "/v1/clients/c/policies/x", {"route": "/x", "limit": 8, **HOUR}, "test.example", 8),
    ("DELETE", "/v1/clients/c/policies/x", None, "test.example", 900),
    (
        "POST",
        "/v1/clients",
        {"id": "new", "hosts": ["new.example"], "rules": [{"id": "n", "route": "/*", "limit": 50, **HOUR}]},
        "new.example",
        50,
    ),
    ("PATCH", "/v1/clients/new", {"hosts": ["other.example"]}, "new.example", 900),
    ("DELETE", "/v1/clients/new", None, "other.example", 900),
    ("DELETE", "/v1/clients/c", None, "test.example", 1000),
    ("PUT", "/v1/enforcement", {"enforcement": "off"}, "test.example", None),
    ("DELETE", "/v1/enforcement", None, "test.example", 1000),
]


@pytest.fixture
def store(valkey_binary: Path) -> Iterator[StoreServer]:
    with StoreServer(valkey_binary, tcp=True) as server:
        yield server


@pytest.fixture
def way(store: StoreServer) -> Iterator[StoreProxy]:
    with StoreProxy(store.port) as proxy:
        yield proxy


@pytest.fixture
def pair(store: StoreServer, way: StoreProxy, tmp_path: Path) -> Iterator[list[SidecarProcess]]:
    """Two replicas; the second one's way to the store can fail."""
    with replicas(tmp_path, CONFIG, [store.url, way.url]) as sidecars:
        yield sidecars


async def limited_to(
    sidecar: SidecarProcess, limit: int | None, host: str = "test.example", *, seconds: float
) -> None:
    what = f"requests of {host} are limited to {limit}"
    await until(lambda: limit_of(sidecar, host=host) == limit, what, seconds=seconds)


async def in_force_everywhere(sidecars: list[SidecarProcess], seconds: float) -> None:
    """Makes each of the changes, on one replica after the other, and waits for it on the others."""
    for number, (method, path, body, host, limit) in enumerate(CHANGES):
        changed = sidecars[number % len(sidecars)]
        assert changed.admin(method, path, body).status in (200, 201, 204)
        assert limit_of(changed, host=host) == limit, f"{method} {path} at once where it was made"
        for sidecar in sidecars:
            await limited_to(sidecar, limit, host, seconds=seconds)


async def test_a_change_is_in_force_everywhere_within_a_second(store: StoreServer, tmp_path: Path) -> None:
    """Every kind of change, made on any replica; where it was made, the next request meets it."""
    with replicas(tmp_path, CONFIG, [store.url] * 3) as sidecars:
        await in_force_everywhere(sidecars, ANNOUNCED_SECONDS)


async def test_with_every_announcement_lost_it_takes_a_few_seconds(
    store: StoreServer, tmp_path: Path
) -> None:
    """Replicas ask for the version, whether they hear of a change or not."""
    with ExitStack() as stack:
        ways = [stack.enter_context(StoreProxy(store.port, swallow_announcements=True)) for _ in range(3)]
        with replicas(tmp_path, CONFIG, [each.url for each in ways]) as sidecars:
            await in_force_everywhere(sidecars, POLLED_SECONDS)
        assert min(each.swallowed for each in ways) >= len(CHANGES) / 2


async def test_no_request_is_left_without_limiting_while_limits_change(
    store: StoreServer, tmp_path: Path
) -> None:
    """Under load on three replicas: only 200 and 429, each with its limit, and never an older one again."""
    with replicas(tmp_path, CONFIG, [store.url] * 3) as sidecars:
        load = SteadyLoad([sidecar.port for sidecar in sidecars])
        async with load:
            for limit in (5, 100_000, 6, 100_001, 7, 100_002):
                mark = load.mark()
                done(sidecars[0].admin("PATCH", "/v1/clients/c/policies/all", {"limit": limit}))
                last = [await load.enforces(n, limit, mark[n], ANNOUNCED_SECONDS) for n in range(3)]
        assert not load.without_limiting()
        for number, first in enumerate(last):
            assert not list(load.outdated(number, 100_002, first))


@pytest.mark.parametrize("fail", [StoreProxy.cut, StoreProxy.silence])
async def test_a_replica_that_was_cut_off_catches_up(
    fail: Callable[[StoreProxy], None], way: StoreProxy, pair: list[SidecarProcess]
) -> None:
    """Meanwhile it answers by `on_unavailable` and shows what it knows; then everything is in force."""
    connected, cut_off = pair
    fail(way)
    await until(lambda: cut_off.ask("GET", "/ready").body == b"degraded", "it notices")
    done(connected.admin("PATCH", "/v1/clients/c/policies/all", {"limit": 5}))
    done(connected.admin("POST", "/v1/clients", {"id": "new", "hosts": ["new.example"]}), 201)
    policy = {"id": "n", "route": "/*", "limit": 50, **HOUR}
    done(connected.admin("POST", "/v1/clients/new/policies", policy), 201)
    assert (cut_off.ask("GET", "/authz/x").status, limit_of(cut_off)) == (200, None)
    assert cut_off.admin("GET", "/v1/clients/c/policies/all").json["limit"] == 1000
    assert cut_off.admin("GET", "/v1/clients/new").status == 404
    way.restore()
    await limited_to(cut_off, 5, seconds=POLLED_SECONDS)
    await limited_to(cut_off, 50, "new.example", seconds=POLLED_SECONDS)


async def test_a_replica_notices_a_store_that_was_emptied_and_changed_meanwhile(
    store: StoreServer, way: StoreProxy, pair: list[SidecarProcess]
) -> None:
    """Even if as many changes were made in it as in the one of before."""
    connected, cut_off = pair
    done(connected.admin("PATCH", "/v1/clients/c/policies/all", {"limit": 5}))
    await limited_to(cut_off, 5, seconds=ANNOUNCED_SECONDS)
    way.cut()
    store.stop()
    await until(lambda: connected.ask("GET", "/ready").body == b"degraded", "it is away")
    store.start()
    await limited_to(connected, 1000, seconds=POLLED_SECONDS)
    done(connected.admin("PATCH", "/v1/clients/c/policies/all", {"limit": 6}))
    way.restore()
    await limited_to(cut_off, 6, seconds=POLLED_SECONDS)


async def test_a_replica_hears_announcements_again_after_it_was_cut_off(
    way: StoreProxy, pair: list[SidecarProcess]
) -> None:
    """It subscribes anew, so that later changes reach it as before."""
    connected, cut_off = pair
    way.cut()
    await until(lambda: cut_off.ask("GET", "/ready").body == b"degraded", "it notices")
    way.restore()
    await until(lambda: cut_off.ask("GET", "/ready").body == b"ready", "it is back")
    for limit in (5, 6, 7):
        done(connected.admin("PATCH", "/v1/clients/c/policies/all", {"limit": limit}))
        await limited_to(cut_off, limit, seconds=ANNOUNCED_SECONDS)


@pytest.mark.parametrize(("on_unavailable", "status"), [("allow", 200), ("deny", 503)])
async def test_a_replica_that_starts_with_the_store_away_uses_the_files_and_catches_up(
    store: StoreServer, way: StoreProxy, tmp_path: Path, on_unavailable: str, status: int
) -> None:
    """Until the store is back a client that it does not know may be the API's: `on_unavailable` decides."""
    config = {**CONFIG, "store": {"on_unavailable": on_unavailable, "timeout_ms": 500}}
    del config["default_client"]
    with replicas(tmp_path, config, [store.url]) as (first,):
        rules = [{"id": "n", "route": "/*", "limit": 50, **HOUR}]
        done(first.admin("POST", "/v1/clients", {"id": "made", "rules": rules}), 201)
        done(first.admin("PATCH", "/v1/clients/c/policies/all", {"limit": 5}))
    way.cut()
    late = replica(tmp_path, config, way.url)
    late.start(ready=b"degraded")
    try:
        assert late.ask("GET", "/clients/c/authz/closed").status == 403
        assert late.admin("GET", "/v1/clients/c/policies/all").json["limit"] == 1000
        assert late.admin("GET", "/v1/clients/made").status == 503
        assert late.ask("GET", "/clients/made/authz/x").status == status
        asked = {"client_id": "made", "route": "/x", "method": "GET", "identifier": {"type": "none"}}
        evaluated = late.evaluate(**asked)
        assert (evaluated.status, evaluated.json["reason"]) == (status, "storage_unavailable")
        way.restore()
        await until(
            lambda: limit_of(late, "/clients/made/authz/x") == 50, "it knows it", seconds=POLLED_SECONDS
        )
        assert limit_of(late, "/clients/c/authz/x") == 5
        assert late.evaluate(**asked | {"client_id": "unknown"}).status == 404
        late.stop()
    finally:
        late.kill()


async def test_a_store_that_comes_back_empty_leaves_the_files_in_force(
    store: StoreServer, tmp_path: Path
) -> None:
    """What the API made was kept there alone; what is made from then on is in force everywhere again."""
    with replicas(tmp_path, CONFIG, [store.url] * 2) as sidecars:
        done(sidecars[0].admin("PATCH", "/v1/clients/c/policies/all", {"limit": 5}))
        for sidecar in sidecars:
            await limited_to(sidecar, 5, seconds=ANNOUNCED_SECONDS)
        store.stop()
        await until(lambda: limit_of(sidecars[0]) is None, "it is away")
        store.start()
        for sidecar in sidecars:
            await limited_to(sidecar, 1000, seconds=POLLED_SECONDS)
            assert sidecar.admin("GET", "/v1/clients/c").json["source"] == "file"
        done(sidecars[1].admin("PATCH", "/v1/clients/c/policies/all", {"limit": 6}))
        for sidecar in sidecars:
            await limited_to(sidecar, 6, seconds=POLLED_SECONDS)
