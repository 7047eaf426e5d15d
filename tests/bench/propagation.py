"""How soon a change of a limit is in force on every replica, under load.

    python -m tests.bench.propagation [changes]

Three sidecars on one Valkey, every one of them asked steadily. One is told by its API to lower or raise a
limit; what the others answer with says when they enforce it. In one case they hear of it, in one every
announcement is lost, and in two a replica's way to the store fails and comes back.
"""

import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.parts import StoreServer, require
from tests.replicas import done, replicas
from tests.sidecar_process import SidecarProcess
from tests.steady_load import SteadyLoad
from tests.store_proxy import StoreProxy

REPLICAS, PER_SECOND = 3, 200.0
#: For how long a replica's store is away; a look at it gives up after one second.
OUTAGE_SECONDS = 2.5
POLICY = "/v1/clients/c/policies/all"
CONFIG: dict[str, Any] = {
    "store": {"timeout_ms": 250},
    "default_client": "c",
    "clients": [
        {
            "id": "c",
            "rules": [
                {
                    "id": "all",
                    "route": "/*",
                    "identifier_type": "none",
                    "algorithm": "fixed_window",
                    "limit": 10**9,
                    "window_seconds": 31_536_000,
                }
            ],
        }
    ],
}
#: Changes come at any moment between two looks of a replica at the store.
_moment = random.Random(3)


@dataclass
class Case:
    """What was measured: for each replica, seconds since the request and since the answer of the API."""

    name: str
    load: SteadyLoad
    since_request: list[list[float]] = field(default_factory=lambda: [[] for _ in range(REPLICAS)])
    since_answer: list[list[float]] = field(default_factory=lambda: [[] for _ in range(REPLICAS)])
    outdated: int = 0


@dataclass(frozen=True)
class Change:
    """One change of the limit, and when the API was asked and had answered."""

    limit: int
    asked: float
    answered: float


def limits(changes: int) -> list[int]:
    """Lowered to what is used up already, and raised again; no two alike."""
    return [10 + number if number % 2 == 0 else 10**9 + number for number in range(changes)]


def change(sidecar: SidecarProcess, limit: int) -> Change:
    asked = perf_counter()
    done(sidecar.admin("PATCH", POLICY, {"limit": limit}))
    return Change(limit, asked, perf_counter())


async def measure(case: Case, made: Change, mark: Sequence[int], numbers: Sequence[int]) -> None:
    """Wait until these replicas enforce the change, and keep how long it took."""
    first = {number: await case.load.enforces(number, made.limit, mark[number], 30) for number in numbers}
    for number, answer in first.items():
        case.since_request[number].append(answer.came - made.asked)
        case.since_answer[number].append(answer.came - made.answered)
    await asyncio.sleep(_moment.uniform(0.1, 0.9))
    for number, answer in first.items():
        case.outdated += sum(1 for _ in case.load.outdated(number, made.limit, answer))


async def changing(case: Case, sidecars: list[SidecarProcess], changes: int) -> None:
    for limit in limits(changes):
        mark = case.load.mark()
        made = await asyncio.to_thread(change, sidecars[0], limit)
        await measure(case, made, mark, range(REPLICAS))


async def cutting(
    case: Case,
    sidecars: list[SidecarProcess],
    changes: int,
    fail: Callable[[], None],
    back: Callable[[], None],
) -> None:
    """The last replica's way to the store fails, a limit is changed, the way comes back."""
    last = REPLICAS - 1
    for limit in limits(changes):
        mark = case.load.mark()
        await asyncio.to_thread(fail)
        made = await asyncio.to_thread(change, sidecars[0], limit)
        await measure(case, made, mark, range(last))
        await asyncio.sleep(max(0.0, OUTAGE_SECONDS - (perf_counter() - made.asked)))
        restored = perf_counter()
        await asyncio.to_thread(back)
        await measure(case, Change(limit, restored, restored), mark, [last])


async def measured(name: str, changes: int) -> Case:
    """One case, with everything that it needs started anew."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(StoreServer(require("valkey"), tcp=True))
        deaf = name == "announcements lost"
        ways = [
            stack.enter_context(StoreProxy(store.port, swallow_announcements=deaf)) for _ in range(REPLICAS)
        ]
        # Only where something is wrong with the way is there anything in it.
        urls = [store.url] * REPLICAS if name == "announced" else [way.url for way in ways]
        sidecars = stack.enter_context(replicas(directory, CONFIG, urls))
        case = Case(name, SteadyLoad([sidecar.port for sidecar in sidecars], per_second=PER_SECOND))
        async with case.load:
            if name.startswith("store"):
                way = ways[-1]
                fail = way.cut if name == "store cut off" else way.silence
                await cutting(case, sidecars, changes, fail, way.restore)
            else:
                await changing(case, sidecars, changes)
        return case


def rows(case: Case) -> list[str]:
    cut = case.name.startswith("store")
    said = []
    for number, answers in enumerate(case.load.answers):
        told = " (API)" if number == 0 else " (cut)" if cut and number == REPLICAS - 1 else ""
        times = [milliseconds(taken[number]) for taken in (case.since_request, case.since_answer)]
        others = sum(one.status not in (200, 429) for one in answers)
        unlimited = sum(one.limit is None for one in answers)
        said.append(
            f"{case.name:<19} {f'{number + 1}{told}':<8} {times[0]:>23} {times[1]:>23} {len(answers):>9,}"
            f" {others:>8} {unlimited:>9}"
        )
    return said


def milliseconds(taken: Sequence[float]) -> str:
    low, middle, high = (1000 * one for one in (min(taken), statistics.median(taken), max(taken)))
    return f"{low:.1f} / {middle:.1f} / {high:.1f}"


async def main(changes: int) -> None:
    fewer = max(1, changes // 5)
    cases = [
        await measured("announced", changes),
        await measured("announcements lost", changes),
        await measured("store cut off", fewer),
        await measured("store silent", fewer),
    ]
    print(f"{changes} changes, {fewer} where the store is away; {PER_SECOND:g} requests/s on each replica.")
    print("Milliseconds (min / median / max) until the replica enforced the change.\n")
    print(
        f"{'case':<19} {'replica':<8} {'since the request':>23} {'since the answer':>23} {'requests':>9}"
        f" {'failed':>8} {'unlimited':>9}"
    )
    for case in cases:
        print("\n".join(rows(case)))
    print("\nFailed: neither 200 nor 429. Of (cut), both times are since its way to the store was back, and")
    print("unlimited are the answers until then. Answers by an older limit after one by the new limit, on")
    print(f"the same replica: {sum(case.outdated for case in cases)}.")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
