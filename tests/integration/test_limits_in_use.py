"""A limit is changed while it is in use: nothing that was counted is forgotten, and nothing fails."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import StoreServer, until
from tests.replicas import done, replicas
from tests.sidecar_process import SidecarProcess

#: Now is in the middle of an interval of so many seconds, about a day: none ends while the tests run.
WINDOW = int(time.time() / 20_000.5)
ALGORITHMS = ["sliding_window", "sliding_window_counter", "fixed_window", "token_bucket"]
#: What is seen in use of 50 while the limit is 10: a bucket misses at most all that it holds.
IN_USE = {**dict.fromkeys(ALGORITHMS, 50), "token_bucket": 10}
algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)


def rule(algorithm: str) -> dict[str, Any]:
    return {
        "id": algorithm,
        "route": f"/{algorithm}",
        "identifier_type": "none",
        "algorithm": algorithm,
        "limit": 100,
        "window_seconds": WINDOW,
    }


@pytest.fixture(scope="module")
def pair(valkey_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SidecarProcess]]:
    config = {
        "default_client": "c",
        "clients": [{"id": "c", "rules": [rule(algorithm) for algorithm in ALGORITHMS]}],
    }
    with (
        StoreServer(valkey_binary) as store,
        replicas(tmp_path_factory.mktemp("pair"), config, [store.url] * 2) as sidecars,
    ):
        yield sidecars


def state(sidecar: SidecarProcess, algorithm: str) -> dict[str, Any]:
    rules = done(sidecar.admin("GET", "/v1/clients/c/state")).json["rules"]
    found: dict[str, Any] = next(each for each in rules if each["id"] == algorithm)
    return found


async def changed(pair: list[SidecarProcess], algorithm: str, limit: int) -> None:
    """Through the first replica; returns when the other one knows it too."""
    done(pair[0].admin("PATCH", f"/v1/clients/c/policies/{algorithm}", {"limit": limit}))
    await until(lambda: state(pair[1], algorithm)["limit"] == limit, "it is known", seconds=3)


@algorithms
async def test_a_limit_below_what_is_in_use_refuses_and_a_raised_one_admits(
    pair: list[SidecarProcess], algorithm: str
) -> None:
    """50 of 100 in use, the limit set to 10: nothing remains, 429. Raised to 100: the next request passes."""
    for number in range(50):
        reply = pair[number % 2].ask("GET", f"/authz/{algorithm}")
        assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (200, str(99 - number))
    await changed(pair, algorithm, 10)
    for sidecar in pair:
        found = state(sidecar, algorithm)
        in_use = found["limit"], found["current_count"], found["remaining"]
        assert in_use == (10, IN_USE[algorithm], 0)
        for _ in range(3):
            refused = sidecar.ask("GET", f"/authz/{algorithm}")
            assert refused.status == 429
            assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == (
                "10",
                "0",
            )
            assert int(refused.headers["retry-after"]) >= 1
    done(pair[0].admin("PATCH", f"/v1/clients/c/policies/{algorithm}", {"limit": 100}))
    passed = pair[0].ask("GET", f"/authz/{algorithm}")
    assert (passed.status, passed.headers["x-ratelimit-remaining"]) == (200, "49")
    await until(lambda: pair[1].ask("GET", f"/authz/{algorithm}").status == 200, "it passes", seconds=3)


async def test_a_bucket_whose_burst_is_raised_has_the_new_room_at_once(pair: list[SidecarProcess]) -> None:
    """What it misses is kept, not what it holds."""
    policy = {**rule("token_bucket"), "id": "burst", "route": "/burst", "limit": 1, "burst": 10}
    done(pair[0].admin("POST", "/v1/clients/c/policies", policy), 201)
    for _ in range(10):
        assert pair[0].ask("GET", "/authz/burst").status == 200
    assert pair[0].ask("GET", "/authz/burst").status == 429
    done(pair[0].admin("PATCH", "/v1/clients/c/policies/burst", {"burst": 30}))
    assert pair[0].ask("GET", "/authz/burst").headers["x-ratelimit-remaining"] == "19"
    assert state(pair[0], "burst")["current_count"] == 11


async def test_another_window_begins_new_counters(pair: list[SidecarProcess]) -> None:
    """As does another algorithm or identifier type; what was counted before has another meaning."""
    policy = {**rule("fixed_window"), "id": "window", "route": "/window", "limit": 1}
    done(pair[0].admin("POST", "/v1/clients/c/policies", policy), 201)
    for change in ({"window_seconds": 3600}, {"algorithm": "sliding_window"}, {"identifier_type": "ip"}):
        assert pair[0].ask("GET", "/authz/window").status == 200
        assert pair[0].ask("GET", "/authz/window").status == 429
        done(pair[0].admin("PATCH", "/v1/clients/c/policies/window", change))
    assert pair[0].ask("GET", "/authz/window").status == 200
