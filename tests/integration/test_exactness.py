"""Two sidecars on one store under load: exactly as many requests pass as the limit says."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.parts import StoreServer, require
from tests.raw_http import request
from tests.sidecar_process import SidecarProcess

LIMIT, REQUESTS, CONNECTIONS = 1000, 5000, 64
#: Now is in the middle of an interval of so many seconds, about a day: none ends while the tests run.
WINDOW = int(time.time() / 20_000.5)

#: Nothing comes back while they run: no entry ends, no interval, and a token takes a day.
COUNTING: dict[str, dict[str, Any]] = {
    "sliding_window": {"limit": LIMIT, "window_seconds": 86_400},
    "fixed_window": {"limit": LIMIT, "window_seconds": WINDOW},
    "token_bucket": {"limit": 1, "burst": LIMIT, "window_seconds": 86_400},
}
algorithms = pytest.mark.parametrize("algorithm", COUNTING)


def rules(route: str) -> list[dict[str, Any]]:
    """One for each algorithm, on a route of its own."""
    return [
        {
            "id": f"{route}-{algorithm}",
            "route": f"/{route}/{algorithm}",
            "identifier_type": "none",
            "algorithm": algorithm,
            **terms,
        }
        for algorithm, terms in COUNTING.items()
    ]


@pytest.fixture(scope="module")
def sidecars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SidecarProcess]]:
    """Two processes, one Valkey on a Unix socket; a store that were away would show as 503."""
    with ExitStack() as stack:
        server = stack.enter_context(StoreServer(require("valkey")))
        config = {
            "store": {"url": server.url, "timeout_ms": 2000, "on_unavailable": "deny"},
            "default_client": "c",
            "clients": [{"id": "c", "rules": [*rules("proxy"), *rules("evaluate")]}],
        }
        directories = [tmp_path_factory.mktemp(f"sidecar-{number}") for number in (1, 2)]
        yield [stack.enter_context(SidecarProcess(directory, config)) for directory in directories]


async def statuses(sidecars: list[SidecarProcess], asked: bytes) -> Counter[int]:
    """What `REQUESTS` of the same are answered with, sent on all connections to both at once."""
    left, answered = iter(range(REQUESTS)), Counter[int]()

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in left:
            writer.write(asked)
            answered[await status(reader)] += 1
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask(sidecars[number % 2].port) for number in range(CONNECTIONS)))
    return answered


async def status(reader: asyncio.StreamReader) -> int:
    """The status of the next answer, its body read as well."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.lower().splitlines()
    lengths = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
    await reader.readexactly(lengths[0])
    return int(status_line.split()[1])


@algorithms
async def test_exactly_the_limit_passes_two_sidecars(algorithm: str, sidecars: list[SidecarProcess]) -> None:
    """5,000 requests against a limit of 1,000."""
    asked = request("GET", f"/authz/proxy/{algorithm}")
    assert await statuses(sidecars, asked) == {200: LIMIT, 429: REQUESTS - LIMIT}


@algorithms
async def test_exactly_as_many_of_a_cost_pass_as_fit(algorithm: str, sidecars: list[SidecarProcess]) -> None:
    """At a cost of 7 each, 142 of 1,000 units; the 6 left over are for who asks for no more."""
    body = evaluate_body(algorithm, 7)
    passed = LIMIT // 7
    asked = request("POST", "/v1/evaluate", {"Content-Type": "application/json"}, body)
    assert await statuses(sidecars, asked) == {200: passed, 429: REQUESTS - passed}
    for cost, expected in ((7, 429), (6, 200), (1, 429)):
        reply = sidecars[0].ask("POST", "/v1/evaluate", body=evaluate_body(algorithm, cost))
        assert reply.status == expected


def evaluate_body(algorithm: str, cost: int) -> bytes:
    asked = {
        "client_id": "c",
        "route": f"/evaluate/{algorithm}",
        "method": "GET",
        "identifier": {"type": "none"},
        "cost": cost,
    }
    return json.dumps(asked).encode()
