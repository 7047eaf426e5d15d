"""What a decision costs, beside the framework's own empty answer and the usual design; and through Envoy.

    python -m tests.bench.compare [--rounds N] [--seconds S] [--write]

Contenders take turns in every round. First each gets as many requests as it can take, then half as many, sent
by the clock. `--write` puts tables and plot into docs/.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from tests.bench import plot, report
from tests.bench.behind_envoy import ASKING, BARE, both
from tests.bench.contenders import (
    BUCKETS,
    CONSTANT,
    EVALUATE,
    FLOODED,
    SEED,
    SIDECAR,
    contenders,
    evaluating,
)
from tests.bench.report import median, spread, table
from tests.bench.stage import Figures, Served, Stage, gathered

WARM_SECONDS = 1.0
#: What Envoy is asked in a second: far from what one of its workers can do.
ENVOY_PER_SECOND = 1_000.0
EVALUATE_PER_SECOND = 500.0

LOADS = (10_000, 100_000, 1_000_000)

Results = dict[str, Figures]


def floods(served: Sequence[Served], rounds: int, seconds: float) -> Results:
    for one in served:
        one.flood(WARM_SECONDS)
    taken = [{one.name: one.flood(seconds) for one in served} for _ in range(rounds)]
    return {one.name: gathered([each[one.name] for each in taken]) for one in served}


def paces(served: Sequence[Served], rates: dict[str, float], rounds: int, seconds: float) -> Results:
    taken = [{one.name: one.pace(seconds, rates[one.name]) for one in served} for _ in range(rounds)]
    return {one.name: gathered([each[one.name] for each in taken]) for one in served}


def compared(rounds: int, seconds: float) -> tuple[Results, Results, Results]:
    """Floods, half of that by the clock, and what the first can take half of."""
    with Stage() as stage:
        served = contenders(stage)
        flooded = floods(served, rounds, seconds)
        halves = {name: median(figures["per_second"]) / 2 for name, figures in flooded.items()}
        paced = paces(served, halves, rounds, seconds)
        pair = [one for one in served if one.name in (CONSTANT, SIDECAR)]
        alike = paces(pair, dict.fromkeys(halves, halves[CONSTANT]), rounds, seconds)
    return flooded, paced, alike


def through_envoy(rounds: int, seconds: float) -> Results:
    with Stage() as stage:
        served = both(stage)
        rates = dict.fromkeys((ASKING, BARE), ENVOY_PER_SECOND)
        paces(served, rates, 1, WARM_SECONDS)
        return paces(served, rates, rounds, seconds)


def evaluated(rounds: int, seconds: float) -> Results:
    with Stage() as stage:
        served = [evaluating(stage)]
        rates = {served[0].name: EVALUATE_PER_SECOND}
        paces(served, rates, 1, WARM_SECONDS)
        return paces(served, rates, rounds, seconds)


def costs(flooded: Results) -> str:
    head = ["", "CPU, µs", "store's CPU, µs", "store calls", "decisions/s on one core", "CPU, ratio"]
    unit = median(flooded[CONSTANT]["cpu"])
    rows = [
        [
            name,
            spread(of["cpu"]),
            spread(of["store_cpu"]),
            f"{median(of['calls']):.3f}",
            spread(of["per_second"], 0),
            f"{median(of['cpu']) / unit:.2f}",
        ]
        for name, of in flooded.items()
    ]
    return table(head, rows)


def latencies(paced: Results, rates: dict[str, float]) -> str:
    head = ["", "requests/s", "p50, ms", "p99, ms", "p99.9, ms", "sent late (p99), ms", "CPU, µs"]
    rows = [
        [
            name,
            f"{rates[name]:,.0f}",
            *(spread(of[part], 2) for part in ("p50", "p99", "p99.9")),
            f"{median(of['late']):.2f}",
            f"{median(of['cpu']):.0f}",
        ]
        for name, of in paced.items()
    ]
    return table(head, rows)


def ratios(flooded: Results, paced: Results, enveloped: Results) -> str:
    cpu = {name: median(of["cpu"]) for name, of in flooded.items()}
    p99 = {name: median(of["p99"]) for name, of in (paced | enveloped).items()}
    ours, buckets = flooded[SIDECAR], flooded[BUCKETS]
    rows = [
        ["CPU: sidecar / constant answer", f"{cpu[SIDECAR] / cpu[CONSTANT]:.2f}", "at most 0.6"],
        ["CPU: the seed's design / sidecar", f"{cpu[SEED] / cpu[SIDECAR]:.1f}", "at least 8"],
        ["store's CPU for a decision, µs: sliding_window", f"{median(ours['store_cpu']):.1f}", "at most 12"],
        ["store's CPU for a decision, µs: token_bucket", f"{median(buckets['store_cpu']):.1f}", "at most 12"],
        ["store calls for a decision", f"{median(ours['calls']):.3f}", "at most 0.2"],
        ["CPU: refusal from memory / allowed", f"{cpu[FLOODED] / cpu[SIDECAR]:.2f}", "at most 0.8"],
        ["p99 at half: sidecar / constant answer", f"{p99[SIDECAR] / p99[CONSTANT]:.2f}", "at most 1.5"],
        ["p99 that the filter adds in Envoy, ms", f"{p99[ASKING] - p99[BARE]:.2f}", ""],
        ["p99 of POST /v1/evaluate at 500 a second, ms", f"{p99[EVALUATE]:.2f}", "below 5"],
    ]
    return table(["", "measured", "wanted"], rows)


def sizes(flooded: Results) -> str:
    """What a load needs, when each core gets half of what it can take."""
    ours = flooded[SIDECAR]
    rows = []
    for load in LOADS:
        cores, stores = (2 * load * median(ours[part]) / 1e6 for part in ("cpu", "store_cpu"))
        counts = (f"{cores:,.1f}", f"{math.ceil(cores):,}", f"{stores:,.1f}", f"{math.ceil(stores):,}")
        rows.append([f"{load:,}", *counts])
    head = ["decisions/s", "sidecar cores", "workers or replicas", "store cores", "stores or shards"]
    return table(head, rows)


def text(scope: str, flooded: Results, paced: Results, alike: Results, envoy: Results, json: Results) -> str:
    halves = {name: median(of["per_second"]) / 2 for name, of in flooded.items()}
    same = dict.fromkeys(alike, halves[CONSTANT])
    return "\n\n".join([
        f"{report.machine()}. {scope}; medians, and the middle half of the rounds.",
        costs(flooded),
        "At half of what each can take:",
        latencies(paced, halves),
        "At the same rate:",
        latencies(alike, same),
        "Through Envoy, which answers in the application's place (the CPU is Envoy's):",
        latencies(envoy, dict.fromkeys(envoy, ENVOY_PER_SECOND)),
        "The JSON API:",
        latencies(json, dict.fromkeys(json, EVALUATE_PER_SECOND)),
        ratios(flooded, paced, envoy | json),
        "Cores for a load, each with half of what it can take:",
        sizes(flooded),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md, with its plot")
    asked = parser.parse_args()
    flooded, paced, alike = compared(asked.rounds, asked.seconds)
    envoy, json = through_envoy(asked.rounds, asked.seconds), evaluated(asked.rounds, asked.seconds)
    scope = f"{asked.rounds} rounds of {asked.seconds:g} s"
    said = text(scope, flooded, paced, alike, envoy, json)
    if asked.write:
        report.publish("compare", said)
        plot.draw(flooded, paced, Path(report.DOCUMENT).with_suffix(".svg"))
    else:
        print(said)


if __name__ == "__main__":
    main()
