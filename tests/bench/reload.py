"""How long decisions wait while a configuration of many clients is read again, and what it takes.

    python -m tests.bench.reload [--clients N] [--write]

Requests come steadily, by the clock; the limit of one client is changed, three times, and then those of all;
the answers say when the new configuration is in force. The longest wait of all requests is the stall; they
go on for a while, since what was in force before is let go of afterwards.
"""

import argparse
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.bench import report
from tests.bench.cases import PATIENCE_SECONDS, hosts_of, many_clients
from tests.bench.load import Outcome, apart, expect, paced
from tests.bench.meters import resident
from tests.bench.stage import OTHER_CORES, Served, Stage, waits
from tests.sidecar_process import SidecarProcess

PER_SECOND, CALM_SECONDS, EDGE_SECONDS = 500.0, 5.0, 2.0
NEW_LIMIT = 77_000
#: Name, and whether all clients are changed.
RELOADS = (("one client, 1st", False), ("one client, 2nd", False), ("one client, 3rd", False), ("all", True))


def measured(clients: int) -> tuple[float, list[list[str]]]:
    """Seconds until it was serving, and the rows."""
    with Stage() as stage:
        store = stage.store()
        begun = time.monotonic()
        process = many_clients(stage, clients, store.url)
        starting = time.monotonic() - begun
        served = Served("reload", process.port, process.pid, hosts_of(clients), [store])
        rows = [row("no reload", load(served, CALM_SECONDS), None, resident(process.pid))]
        for number, (name, everyone) in enumerate(RELOADS):
            # All are read as at the start, and there are requests in between now.
            seconds = EDGE_SECONDS * 2 + (2 if everyone else 0.5) * starting
            with ThreadPoolExecutor(1) as threads:
                loaded = threads.submit(load, served, seconds)
                changed = change(process, clients, NEW_LIMIT + number, loaded, everyone=everyone)
                rows.append(row(name, loaded.result(), changed, resident(process.pid)))
        return starting, rows


def load(served: Served, seconds: float) -> Outcome:
    return expect(apart(OTHER_CORES, paced, served.load(seconds, PER_SECOND)), b"200")


def change(
    process: SidecarProcess, clients: int, new: int, loaded: "Future[Outcome]", *, everyone: bool
) -> float:
    """Seconds until a new limit of the last client is in force; the load must last that long."""
    time.sleep(EDGE_SECONDS / 2)
    files = sorted((process.file.parent / "clients.d").iterdir())
    for file in files if everyone else files[-1:]:
        edit(file, new, everyone=everyone)
    begun = time.monotonic()
    while limit(process, clients - 1) != new:
        if loaded.done() or time.monotonic() - begun > PATIENCE_SECONDS:
            raise RuntimeError(f"the new limit is not in force after {time.monotonic() - begun:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - begun


def edit(file: Path, new: int, *, everyone: bool) -> None:
    """As an editor does: beside it, then in its place."""
    head, *lines = file.read_text().splitlines(keepends=True)
    first = 0 if everyone else len(lines) - 1
    changed = [re.sub(r'"limit": \d+', f'"limit": {new}', line) for line in lines[first:]]
    beside = file.with_name(".new")
    beside.write_text("".join([head, *lines[:first], *changed]))
    beside.rename(file)


def limit(process: SidecarProcess, number: int) -> int:
    headers = {"Host": f"c{number}.example.com", "X-Session-Id": "looking"}
    return int(process.ask("GET", "/authz/api/videos", headers).headers["x-ratelimit-limit"])


def row(name: str, outcome: Outcome, seconds: float | None, size: int) -> list[str]:
    of = waits(outcome)
    times = (f"{of[part]:,.2f}" for part in ("p50", "p99", "p99.9", "max"))
    return [name, "" if seconds is None else f"{seconds:.1f}", *times, f"{size / 1e6:,.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    asked = parser.parse_args()
    head = ["changed", "in force after, s", "p50, ms", "p99, ms", "p99.9, ms", "longest, ms", "MB"]
    starting, rows = measured(asked.clients)
    text = (
        f"{report.machine()}. {asked.clients:,} clients, {PER_SECOND:g} requests a second. "
        f"Serving {starting:.1f} s after the start.\n\n{report.table(head, rows)}"
    )
    if asked.write:
        report.publish("reload", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
