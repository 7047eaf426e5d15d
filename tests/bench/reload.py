"""How long decisions wait while a configuration of many clients is read again.

    python -m tests.bench.reload [--clients N] [--write]

Requests come steadily, by the clock; one limit in one of the files is changed; the answers say when the new
configuration is in force. The longest wait of all requests until then is the stall.
"""

import argparse
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.bench import report
from tests.bench.cases import PATIENCE_SECONDS, hosts_of, many_clients
from tests.bench.load import Outcome, apart, expect, paced
from tests.bench.meters import resident
from tests.bench.stage import OTHER_CORES, Served, Stage, waits
from tests.sidecar_process import SidecarProcess

PER_SECOND, BEFORE_SECONDS, AFTER_SECONDS = 500.0, 5.0, 2.0
NEW_LIMIT = 77_777


def measured(clients: int) -> list[list[str]]:
    with Stage() as stage:
        store = stage.store()
        begun = time.monotonic()
        process = many_clients(stage, clients, store.url)
        reading = time.monotonic() - begun
        served = Served("reload", process.port, process.pid, hosts_of(clients), [store])
        calm = load(served, BEFORE_SECONDS)
        before = resident(process.pid)
        with ThreadPoolExecutor(1) as threads:
            # Twice as long as the first reading took: there are requests in between now.
            loaded = threads.submit(load, served, 2 * reading + AFTER_SECONDS)
            changed = change(process, clients, loaded)
            busy = loaded.result()
        return [
            row("no reload", calm, 0.0, before),
            row("reload", busy, changed, resident(process.pid)),
        ]


def load(served: Served, seconds: float) -> Outcome:
    return expect(apart(OTHER_CORES, paced, served.load(seconds, PER_SECOND)), b"200")


def change(process: SidecarProcess, clients: int, loaded: "Future[Outcome]") -> float:
    """Seconds until a new limit of the last client is in force; the load must last that long."""
    time.sleep(AFTER_SECONDS / 2)
    edit(process.file.parent / "clients.d")
    begun = time.monotonic()
    while limit(process, clients - 1) != NEW_LIMIT:
        if loaded.done() or time.monotonic() - begun > PATIENCE_SECONDS:
            raise RuntimeError(f"the new limit is not in force after {time.monotonic() - begun:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - begun


def edit(folder: Path) -> None:
    """As an editor does: beside it, then in its place."""
    file = max(folder.iterdir())
    lines = file.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1].removeprefix("- "))
    last["rules"][0]["limit"] = NEW_LIMIT
    new = folder / ".new"
    new.write_text("".join([*lines[:-1], f"- {json.dumps(last)}\n"]))
    new.rename(file)


def limit(process: SidecarProcess, number: int) -> int:
    headers = {"Host": f"c{number}.example.com", "X-Session-Id": "looking"}
    return int(process.ask("GET", "/authz/api/videos", headers).headers["x-ratelimit-limit"])


def row(name: str, outcome: Outcome, seconds: float, size: int) -> list[str]:
    of = waits(outcome)
    times = (f"{of[part]:,.2f}" for part in ("p50", "p99", "p99.9", "max"))
    return [name, f"{seconds:.1f}" if seconds else "", *times, f"{size / 1e6:,.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    asked = parser.parse_args()
    head = ["", "in force after, s", "p50, ms", "p99, ms", "p99.9, ms", "longest, ms", "MB"]
    scope = f"{report.machine()}. {asked.clients:,} clients, {PER_SECOND:g} requests a second."
    text = f"{scope}\n\n{report.table(head, measured(asked.clients))}"
    if asked.write:
        report.publish("reload", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
