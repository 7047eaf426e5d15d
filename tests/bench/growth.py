"""What a decision costs as things grow: rules, clients, identifiers, connections, workers, shards;
and the memory (RSS, all its processes) that the sidecar has then.

    python -m tests.bench.growth [--only PART …] [--rounds N] [--seconds S] [--write]

The sizes of one thing take turns in every round, so that a busy moment of the machine meets them all.
"""

import argparse

from tests.bench import report
from tests.bench.cases import DIMENSIONS
from tests.bench.meters import resident
from tests.bench.report import median, spread, table
from tests.bench.stage import Figures, Served, Stage, gathered

WARM_SECONDS = 0.5


def grown(name: str, rounds: int, seconds: float) -> dict[str, Figures]:
    with Stage() as stage:
        served = DIMENSIONS[name](stage)
        sizes = {one.name: warm(one) for one in served}
        taken = [{one.name: one.flood(seconds) for one in served} for _ in range(rounds)]
    return {size: gathered([each[size] for each in taken]) | {"bytes": [sizes[size]]} for size in sizes}


def warm(served: Served) -> float:
    """Every caller comes at least once; returns the server's memory when there are that many counters."""
    served.flood(WARM_SECONDS)
    if len(served.requests) > 10_000:
        served.everybody()
    return resident(served.pid)


def rows(name: str, figures: dict[str, Figures]) -> list[list[str]]:
    first = median(next(iter(figures.values()))["cpu"])
    return [
        [
            f"{name}: {size}",
            spread(of["cpu"]),
            f"{median(of['cpu']) / first:.2f}",
            spread(of["store_cpu"]),
            f"{median(of['calls']):.3f}",
            f"{median(of['per_second']):,.0f}",
            f"{of['bytes'][0] / 1e6:,.0f}",
        ]
        for size, of in figures.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=DIMENSIONS, default=list(DIMENSIONS), metavar="PART")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    asked = parser.parse_args()
    said = []
    for name in asked.only:
        said += rows(name, grown(name, asked.rounds, asked.seconds))
        print(f"{name}: done", flush=True)
    head = ["", "CPU, µs", "ratio to the first", "store's CPU, µs", "store calls", "decisions/s", "MB"]
    scope = f"{report.machine()}. {asked.rounds} rounds of {asked.seconds:g} s for each."
    text = f"{scope}\n\n{table(head, said)}"
    if asked.write:
        report.publish("growth", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
