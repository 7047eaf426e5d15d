"""What callers see while things break: a table of faults, each played under a steady load.

    python -m tests.bench.faults [seconds] [name ...]

Prints Markdown. Each fault lasts so many seconds (10 unless said, some longer), those named or all. Other
names are `append-only file`, `shares` (three replicas that limit by themselves) and `restarts`, for which the
ports 8000, 8080 and 10000 have to be free.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.faults.cut_short import CUT_BYTES, cut_short
from tests.faults.play import Played, play
from tests.faults.restarts import REPLICAS, draining, rolling
from tests.faults.roaming import Answered
from tests.faults.rows import FAULTS, Fault
from tests.faults.shares import Outage, config, outage, three

PER_SECOND = 200
#: What lasts longer than the others, and an outage in which limits are local.
LONG_SECONDS = 30.0
LONG = ("stopped (SIGSTOP)",)
REASONS = (
    "allowed",
    "quota_exceeded",
    "storage_unavailable (200)",
    "storage_unavailable (503)",
    "local_quota_exceeded",
)
HEAD = (
    "fault",
    "sent",
    *REASONS,
    "other",
    "p50 / p99 ms during it",
    "back after s",
    "allowed by the store",
    "counted",
    "twice",
    "gone",
    "`/ready` degraded",
    "breaker turned",
)
#: Of the three replicas: a limit of this in ten seconds.
SHARED, WINDOW_SECONDS = 100, 10
#: Of the rolling restarts, and of those behind an Envoy.
LIMIT, REQUESTS, RESTARTS = 6000, 10_000, 10


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def head(*cells: str) -> Iterator[str]:
    yield row(*cells)
    yield "|---" * len(cells) + "|"


def cells(played: Played) -> tuple[object, ...]:
    reasons = played.reasons
    return (
        f"{played.fault.name}, {LONG_SECONDS:g} s" if played.fault.name in LONG else played.fault.name,
        len(played.answers),
        *(reasons[name] for name in REASONS),
        sum(reasons.values()) - sum(reasons[name] for name in REASONS),
        f"{played.percentile_ms(0.5):.1f} / {played.percentile_ms(0.99):.1f}",
        f"{played.recovered_seconds:.2f}",
        len(played.by_store),
        f"{len(played.charged)} (of lost replies: {len(played.stood)})",
        len(played.twice),
        played.gone,
        "yes" if played.said_degraded else "no",
        len(played.turns),
    )


async def faults(seconds: float, wanted: Sequence[Fault]) -> None:
    print(f"{PER_SECOND} requests/s, a third each for rules that allow, deny and are local without the store")
    print(f"(the local one: 10 per second). A fault lasts {seconds:g} s unless said.\n")
    print("\n".join(head(*HEAD)), flush=True)
    for fault in wanted:
        lasting = max(seconds, LONG_SECONDS) if fault.name in LONG else seconds
        with tempfile.TemporaryDirectory() as directory:
            played = await play(fault, Path(directory), seconds=lasting, per_second=PER_SECOND)
        print(row(*cells(played)), flush=True)
    print(
        "\nCounted is at least what the store allowed, less what is gone, and at most that and the requests"
    )
    print(
        "whose reply was lost; nothing twice. Back: from the store's return to the last answer without it.\n"
    )


def file_cut_short() -> None:
    with tempfile.TemporaryDirectory() as directory:
        before, after, _ = cut_short(Path(directory), 200)
    print(f"The embedded store's append-only file shortened by {CUT_BYTES} bytes after {len(before)} counted")
    print(f"requests: {len(before - after)} gone, {len(after - before)} too many; it starts by itself.\n")


def shares(seconds: float) -> None:
    settings = config(algorithm="sliding_window", limit=SHARED, window_seconds=WINDOW_SECONDS)
    with tempfile.TemporaryDirectory() as directory, three(Path(directory), settings) as stage:
        found: Outage = asyncio.run(outage(*stage, seconds=seconds, per_second=PER_SECOND))
    share = SHARED // REPLICAS
    print(f"Three replicas in `local`, {SHARED} per {WINDOW_SECONDS} s, an outage of {seconds:g} s: sent")
    print(f"{len(found.answers)}, admitted {len(found.admitted)}, within any {WINDOW_SECONDS} s at most")
    print(f"{found.most_within(WINDOW_SECONDS)}; the bound is {REPLICAS} x {share} = {REPLICAS * share}.\n")


async def restarts() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answered = await rolling(Path(directory), limit=LIMIT, per_second=PER_SECOND, rounds=2)
    print(f"Two rolling restarts of three replicas: {told(answered)}; the limit is {LIMIT}.\n")
    with tempfile.TemporaryDirectory() as directory:
        answered, away = await draining(
            Path(directory), requests=REQUESTS, restarts=RESTARTS, per_second=300, pause_seconds=1.5
        )
    print(f"Behind an Envoy, {RESTARTS} restarts of its only sidecar: {told(answered)};")
    print(f"decided by the rule {answered.limited}, passed while nobody was there ({away:.1f} s)")
    print(f"{answered.statuses.get(200, 0) - answered.limited}.\n")


def told(answered: Answered) -> str:
    errors = len(answered.failures) + sum(n for status, n in answered.statuses.items() if status >= 500)
    return f"{answered.number} requests, by status {answered.statuses}, errors that a client saw {errors}"


def main(seconds: float, names: Sequence[str]) -> None:
    wanted = [fault for fault in FAULTS if not names or any(name in fault.name for name in names)]
    if wanted:
        asyncio.run(faults(seconds, wanted))
    parts: dict[str, Callable[[], None]] = {
        "append-only file": file_cut_short,
        "shares": lambda: shares(LONG_SECONDS),
        "restarts": lambda: asyncio.run(restarts()),
    }
    for name, part in parts.items():
        if not names or name in names:
            part()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, sys.argv[2:])
