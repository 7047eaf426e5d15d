"""Whether anything grows: a steady rate for minutes, with rule edits, reloads and ever new callers.

    python -m tests.bench.soak [--minutes 10] [--rate 500]

One sidecar on one Valkey. Every request comes from four identifiers that were never seen before, some also
with a host and a path that were not; one in ten is from a caller whose limit is used up, one in fifty has no
address that can be read. Meanwhile a rule is changed through the API every second and the file is written
anew every five. What is used is printed as Markdown, at the start (after a warm-up), in the middle and at the
end.
"""

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml
from redis.asyncio import Redis

from tests.parts import StoreServer, require
from tests.raw_http import request
from tests.sidecar_process import SidecarProcess

CONNECTIONS, WINDOW_SECONDS, WARM_UP_SECONDS = 20, 30, 90
ALGORITHMS = ("sliding_window", "sliding_window_counter", "fixed_window", "token_bucket")
IDENTIFIERS = ("session_id", "ip", "user_id", "header:x-device")
_RULE = {"route": "/*", "algorithm": "token_bucket", "limit": 1000, "window_seconds": WINDOW_SECONDS}
_random = random.Random(5)


def config(edition: int = 0) -> dict[str, Any]:
    rules = [
        {**_RULE, "id": f"by-{n}", "identifier_type": kind, "algorithm": algorithm}
        for n, (kind, algorithm) in enumerate(zip(IDENTIFIERS, ALGORITHMS, strict=True))
    ]
    few = {"id": "few", "route": "/few", "identifier_type": "ip", "limit": 5, "window_seconds": 3600}
    edited = {**_RULE, "id": "edited", "identifier_type": "none", "limit": 10**6 + edition}
    return {
        "store": {"timeout_ms": 500, "identifiers_alarm": 10**7},
        "default_client": "c",
        "clients": [
            {"id": "c", "rules": [*rules, few | {"final": True}]},
            {"id": "other", "hosts": ["*.other.example"], "rules": [edited]},
        ],
    }


def asked(number: int) -> bytes:
    """The request of this number."""
    if number % 10 == 0:
        return request("GET", "/authz/few", {"X-Client-IP": "192.0.2.1"})
    fields = {
        "X-Session-ID": f"session-{number}",
        "X-Client-IP": f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::1",
        "X-User-ID": str(number),
        "X-Device": f"{number:032x}",
    }
    if number % 50 == 1:
        fields["X-Client-IP"] = f"no-address-{number}"
    if number % 5 == 2:
        fields["Host"] = f"h{number}.other.example"
    return request("GET", f"/authz/p{number}/x?q={number}", fields)


@dataclass
class Load:
    """What is asked at a steady rate, and what came of it since the last look."""

    port: int
    rate: float
    sent: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    failed: int = 0
    late: int = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CONNECTIONS):
                group.create_task(self._keep_asking(number / self.rate))

    async def _keep_asking(self, first: float) -> None:
        pause, due = CONNECTIONS / self.rate, perf_counter() + first
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while True:
            now = perf_counter()
            self.late += now > due + pause
            await asyncio.sleep(max(0.0, due - now))
            due = max(due + pause, perf_counter() - pause)
            try:
                await self._ask(reader, writer)
            except (OSError, EOFError, TimeoutError):
                self.failed += 1
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sent += 1
        began = perf_counter()
        writer.write(asked(self.sent))
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
        self.times.append(perf_counter() - began)
        self.answers[int(head.split()[1])] += 1


@dataclass
class Soak:
    sidecar: SidecarProcess
    store: Redis
    load: Load
    edits: int = 0
    reloads: int = 0

    async def edit(self) -> None:
        """A rule through the API every second; there, gone, and changed."""
        path = "/v1/clients/api/policies/one"
        made = {"id": "api", "rules": [{**_RULE, "id": "one", "identifier_type": "ip"}]}
        while True:
            await asyncio.sleep(1)
            self.edits += 1
            if self.edits % 10 == 1:
                await self._admin("PUT", "/v1/clients/api", made, 200)
            elif self.edits % 10 == 0:
                await self._admin("DELETE", "/v1/clients/api", None, 204)
            else:
                await self._admin("PATCH", path, {"limit": _random.randint(1, 1000)}, 200)

    async def reload(self) -> None:
        while True:
            await asyncio.sleep(5)
            self.reloads += 1
            whole = yaml.safe_load(self.sidecar.file.read_text())
            whole["clients"] = config(self.reloads)["clients"]
            beside = self.sidecar.file.with_suffix(".new")
            beside.write_text(yaml.safe_dump(whole, sort_keys=False))
            beside.rename(self.sidecar.file)

    async def look(self) -> dict[str, str]:
        process = Path(f"/proc/{self.sidecar.pid}")
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
        page = await asyncio.to_thread(self.sidecar.admin, "GET", "/metrics")
        series = [line for line in page.body.decode().splitlines() if line and not line.startswith("#")]
        tasks = next((line.split()[1] for line in series if line.startswith("rate_limit_tasks")), "?")
        times, self.load.times = sorted(self.load.times), []
        return {
            "requests sent": f"{self.load.sent:,}",
            "identifiers seen, about": f"{self.load.sent * 9 // 10 * len(IDENTIFIERS):,}",
            "edits / reloads": f"{self.edits} / {self.reloads}",
            "RSS of the sidecar (MB)": f"{int(status['VmRSS'].split()[0]) / 1024:.1f}",
            "open files": str(len(list((process / "fd").iterdir()))),
            "threads": status["Threads"],
            "asyncio tasks": tasks.removesuffix(".0"),
            "metric series": str(len(series)),
            "log lines": f"{self.sidecar.log.count(chr(10)):,}",
            "keys in the store": f"{await self.store.dbsize():,}",
            "memory of the store (MB)": f"{(await self.store.info('memory'))['used_memory'] / 2**20:.1f}",
            "p50 / p99 / max since the last look (ms)": _milliseconds(times),
            "answers": ", ".join(f"{status}: {n:,}" for status, n in sorted(self.load.answers.items())),
            "without an answer": str(self.load.failed),
        }

    async def _admin(self, method: str, target: str, body: Any, status: int) -> None:
        reply = await asyncio.to_thread(self.sidecar.admin, method, target, body)
        assert reply.status in (status, 201), (method, target, reply)


def _milliseconds(times: list[float]) -> str:
    if not times:
        return "-"
    found = times[len(times) // 2], times[len(times) * 99 // 100], times[-1]
    return " / ".join(f"{1000 * one:.2f}" for one in found)


async def main(minutes: float, rate: float) -> None:
    with tempfile.TemporaryDirectory() as folder, StoreServer(require("valkey")) as store:
        settings = config()
        settings["store"]["url"] = store.url
        with SidecarProcess(Path(folder), settings) as sidecar:
            load = Load(sidecar.port, rate)
            soak = Soak(sidecar, Redis.from_url(store.url), load)
            tasks = [asyncio.create_task(job) for job in (load.run(), soak.edit(), soak.reload())]
            looks = await _watched(soak, minutes * 60, tasks)
            await soak.store.aclose()
    print(f"\n{minutes:g} minutes at {rate:g} requests/s; {CONNECTIONS} connections.\n")
    print("| | " + " | ".join(looks) + " |")
    print("|---" + "|---:" * len(looks) + "|")
    for name in looks["end"]:
        print(f"| {name} | " + " | ".join(look[name] for look in looks.values()) + " |")


async def _watched(soak: Soak, seconds: float, tasks: list[asyncio.Task[None]]) -> dict[str, dict[str, str]]:
    looks: dict[str, dict[str, str]] = {}
    began = perf_counter()
    for name, at in (("start", min(WARM_UP_SECONDS, seconds / 4)), ("middle", seconds / 2), ("end", seconds)):
        await asyncio.wait(tasks, timeout=began + at - perf_counter(), return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                await task
        looks[f"{name}"] = await soak.look()
        print(f"{name}, after {perf_counter() - began:.0f} s: {looks[name]}", flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return looks


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--rate", type=float, default=500)
    given = arguments.parse_args()
    asyncio.run(main(given.minutes, given.rate))
