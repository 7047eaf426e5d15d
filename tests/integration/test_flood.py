"""A flood from one address on a real sidecar with its default deadline: nobody passes uncounted."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.raw_http import request
from tests.sidecar_process import SidecarProcess

LIMIT, CONNECTIONS, REQUESTS_EACH = 10, 300, 20
#: Shorter than the whole flood takes, longer than another program keeps the store from running.
TIMEOUT_MS = 250
RULE = {"id": "r", "route": "/*", "identifier_type": "ip", "limit": LIMIT, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "store": {"timeout_ms": TIMEOUT_MS},
    "clients": [{"id": "c", "rules": [RULE]}],
}
Answer = tuple[int, str | None, bool]


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path, CONFIG) as running:
        yield running


async def test_of_a_flood_exactly_the_limit_passes_and_everything_else_is_counted(
    sidecar: SidecarProcess,
) -> None:
    """300 connections that are kept, all at once: ten are admitted, no other is let through unseen."""
    answers = await flood(sidecar.port, "/authz/x")
    assert answers == {
        (200, str(LIMIT), False): LIMIT,
        (429, str(LIMIT), True): CONNECTIONS * REQUESTS_EACH - LIMIT,
    }
    metrics = sidecar.admin("GET", "/metrics", key=None).body.decode()
    assert "rate_limit_store_errors_total 0.0" in metrics


async def flood(port: int, target: str) -> Counter[Answer]:
    """What they all are answered: status, limit, and whether it is said when to come again."""
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)))
    asked, answered = request("GET", target, {"X-Client-IP": "192.0.2.7"}), Counter[Answer]()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(REQUESTS_EACH):
            writer.write(asked)
            answered[await answer(reader)] += 1
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask(reader, writer) for reader, writer in opened))
    return answered


async def answer(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.lower().removesuffix("\r\n\r\n").split("\r\n")
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    await reader.readexactly(int(fields["content-length"]))
    return int(status_line.split()[1]), fields.get("x-ratelimit-limit"), "retry-after" in fields
