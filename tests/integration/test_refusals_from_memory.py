"""Refusals from memory on real sidecars: a flood costs the store nothing, and nobody waits longer."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import yaml

from tests.parts import StoreServer, until
from tests.raw_http import Connection, Reply
from tests.replicas import done, replicas
from tests.sidecar_process import SidecarProcess

ALGORITHMS = ("sliding_window", "sliding_window_counter", "fixed_window", "token_bucket")
DAY = {"limit": 2, "window_seconds": 86_400}
RULES: list[dict[str, Any]] = [
    *(
        {"id": name, "route": f"/{name}/*", "identifier_type": "session_id", **DAY}
        for name in ("mine", "raised", "overridden", "reset", "costly")
    ),
    {"id": "deep", "route": "/mine/deep", "identifier_type": "none", "limit": 5, "window_seconds": 86_400},
    {
        "id": "watch",
        "route": "/mine/watched",
        "identifier_type": "none",
        "mode": "shadow",
        "limit": 1,
        "window_seconds": 86_400,
    },
    *(
        {
            "id": f"short-{algorithm}",
            "route": f"/short/{algorithm}",
            "identifier_type": "none",
            "algorithm": algorithm,
            "limit": 1,
            "window_seconds": 1,
        }
        for algorithm in ALGORITHMS
    ),
]
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "identity": {"session_header": "x-session-id"},
    "rate": {"limit": 1, "window_seconds": 86_400},
    "clients": [
        {"id": "c", "rules": RULES},
        # Nothing that the API says of a client stands above this one's file.
        {
            "id": "f",
            "rules": [{"id": "edited", "route": "/*", "identifier_type": "session_id", **DAY}],
        },
    ],
}


@pytest.fixture(scope="module")
def pair(store: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SidecarProcess]]:
    """Two replicas for all tests: each has its own rules or callers."""
    with replicas(tmp_path_factory.mktemp("pair"), CONFIG, [store.url] * 2) as sidecars:
        yield sidecars


@pytest.fixture
def counted(store: StoreServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(store.url) as client:
        yield client


def decisions_of(store: redis.Redis) -> int:
    """How often a script was called."""
    stats: dict[str, Any] = store.info("commandstats")
    return sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)


def ask(sidecar: SidecarProcess, target: str, who: str = "alice") -> Reply:
    """One request, of a caller that is counted by its session."""
    return sidecar.ask("GET", target, {"X-Session-Id": who})


def metric(sidecar: SidecarProcess, name: str, **labels: str) -> float:
    """The sum of all series with these labels."""
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in page.splitlines() if line.startswith(name) and all(w in line for w in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def used_up(pair: list[SidecarProcess], target: str) -> None:
    """On both replicas, which both remember it."""
    assert [ask(one, target).status for one in (*pair, *pair)] == [200, 200, 429, 429]


async def allowed(pair: list[SidecarProcess], target: str) -> None:
    """At once where it was changed, within a second on the other one."""
    assert ask(pair[0], target).status == 200
    await until(lambda: ask(pair[1], target).status == 200, "the other replica allows", seconds=3)


def test_a_flood_on_a_used_up_key_asks_the_store_about_once_a_second(
    pair: list[SidecarProcess], counted: redis.Redis
) -> None:
    """Every refusal is counted by the metrics and says the same; the log has a sample."""
    sidecar = pair[0]
    for _ in range(2):
        assert ask(sidecar, "/authz/mine/x", "flood").status == 200
    before, began, lines = decisions_of(counted), time.monotonic(), len(sidecar.logged("refused"))
    with Connection(sidecar.port) as connection:
        replies = [connection.ask("GET", "/authz/mine/x", {"X-Session-Id": "flood"}) for _ in range(1000)]
    seconds = time.monotonic() - began
    # Looks of the sidecars themselves are a few a second.
    assert decisions_of(counted) - before <= 10 * (seconds + 1)
    assert {(one.status, one.headers["x-ratelimit-rule"], one.json["status"]) for one in replies} == {
        (429, "mine", 429)
    }
    assert metric(sidecar, "rate_limit_requests_total", result="rejected", rule="mine") == 1000
    assert 1 <= len(sidecar.logged("refused")) - lines <= seconds + 2


def test_who_is_refused_by_one_rule_is_charged_to_none(pair: list[SidecarProcess]) -> None:
    """Not to the other rule, which is not asked, nor to one that watches, and no metric says so."""
    used_up(pair, "/authz/mine/x")
    for _ in range(20):
        assert ask(pair[0], "/authz/mine/deep").headers["x-ratelimit-rule"] == "mine"
        assert ask(pair[0], "/authz/mine/watched").status == 429
    assert metric(pair[0], "rate_limit_shadow_refusals_total", rule="watch") == 0
    assert ask(pair[0], "/authz/mine/deep", "bob").headers["x-ratelimit-remaining"] == "1"


def test_another_cost_is_another_question(pair: list[SidecarProcess]) -> None:
    """What does not fit twice may fit once; a cost of 0 is answered as 1 would be, and charges nothing."""

    def evaluate(cost: int) -> bool:
        identifier = {"type": "session_id", "session_id": "carol"}
        asked = {"client_id": "c", "route": "/costly/x", "method": "GET", "identifier": identifier}
        reply = pair[0].evaluate(**asked, cost=cost)
        return bool(reply.json["allowed"])

    answers = [evaluate(cost) for cost in (1, 2, 2, 1, 2, 1, 0, 0)]
    assert answers == [True, False, False, True, False, False, False, False]


async def test_a_raised_limit_is_in_force_at_once_here_and_soon_elsewhere(pair: list[SidecarProcess]) -> None:
    used_up(pair, "/authz/raised/x")
    done(pair[0].admin("PATCH", "/v1/clients/c/policies/raised", {"limit": 1000}))
    await allowed(pair, "/authz/raised/x")


async def test_an_override_is_in_force_at_once_here_and_soon_elsewhere(pair: list[SidecarProcess]) -> None:
    """For its identifier; others are refused as before."""
    used_up(pair, "/authz/overridden/x")
    for _ in range(3):
        ask(pair[0], "/authz/overridden/x", "bob")
    done(pair[0].admin("PATCH", "/v1/clients/c/policies/overridden", {"overrides": {"alice": 1000}}))
    await allowed(pair, "/authz/overridden/x")
    assert ask(pair[0], "/authz/overridden/x", "bob").status == 429


async def test_a_reset_of_one_identifier_is_in_force_at_once_here_and_soon_elsewhere(
    pair: list[SidecarProcess],
) -> None:
    """Nobody is refused from memory who could be allowed."""
    used_up(pair, "/authz/reset/x")
    done(pair[0].admin("DELETE", "/v1/clients/c/counters?policy=reset&identifier=alice"))
    await allowed(pair, "/authz/reset/x")


def test_an_edited_file_is_in_force_once_it_was_read(pair: list[SidecarProcess]) -> None:
    used_up(pair, "/clients/f/authz/x")
    config = yaml.safe_load(pair[0].file.read_text())
    config["clients"][1]["rules"][0]["limit"] = 1000
    pair[0].file.write_text(yaml.safe_dump(config))
    done(pair[0].admin("POST", "/v1/reload"))
    assert ask(pair[0], "/clients/f/authz/x").status == 200


async def test_waiting_as_long_as_retry_after_says_is_enough_in_the_midst_of_a_flood(
    pair: list[SidecarProcess],
) -> None:
    """With windows of a second too, whatever the algorithm: memory makes nobody wait longer."""

    def flooded(target: str) -> list[int]:
        """What a caller gets that always waits for what the last refusal said."""
        found = []
        for _ in range(2):
            found.append(ask(pair[0], target).status)
            refusals = [ask(pair[0], target) for _ in range(30)]
            if refusals[-1].status == 429:
                time.sleep(int(refusals[-1].headers["retry-after"]))
            found.append(ask(pair[0], target).status)
        return found

    targets = [f"/authz/short/{algorithm}" for algorithm in ALGORITHMS]
    found = await asyncio.gather(*(asyncio.to_thread(flooded, target) for target in targets))
    for statuses in found:
        assert statuses[1::2] == [200] * 2, (statuses, targets)


def test_the_per_user_api_asks_the_store_each_time(pair: list[SidecarProcess], counted: redis.Redis) -> None:
    """Its refusals are few, and reset from elsewhere."""
    body, headers = json.dumps({"endpoint": "/e"}).encode(), {"X-User-Id": "7"}
    assert pair[0].ask("POST", "/rate/check", headers, body).status == 200
    before = decisions_of(counted)
    for _ in range(50):
        assert pair[0].ask("POST", "/rate/check", headers, body).status == 429
    assert decisions_of(counted) - before >= 50
