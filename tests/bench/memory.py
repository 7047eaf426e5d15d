"""What an identifier's counter takes in the store, by algorithm.

    python -m tests.bench.memory [--identifiers N] [--write]

The store's used memory before and after so many callers came, divided by them: keys, values, expiries and the
tables that hold them. What the sidecar itself takes is in the table of `tests.bench.growth`.
"""

import argparse
from dataclasses import replace

from tests.bench import report
from tests.bench.cases import ALGORITHMS, Callers
from tests.bench.contenders import callers, config, rule
from tests.bench.meters import used_memory
from tests.bench.stage import Served, Stage

#: So slow that no counter ends while others are made.
SLOW = {"limit": 200, "window_seconds": 86_400}
#: Of callers, where each comes often.
FEWEST = 1_000
#: Requests of each caller; only one algorithm keeps them apart.
REQUESTS = {"sliding_window": (1, 10, 100)}


def taken(algorithm: str, requests: int, identifiers: int) -> float:
    """Bytes for one identifier."""
    with Stage() as stage:
        store = stage.store()
        process = stage.sidecar(config(rule(algorithm=algorithm, **SLOW)), store.url)
        # Connections and script are there before it begins.
        one = Served(algorithm, process.port, process.pid, callers(1), [store])
        one.everybody()
        before = used_memory(store)
        everybody = replace(one, requests=Callers(identifiers, shuffled=False))
        for _ in range(requests):
            everybody.everybody()
        return (used_memory(store) - before) / identifiers


def rows(identifiers: int) -> list[list[str]]:
    return [
        [f"`{name}`", f"{requests}", f"{taken(name, requests, max(FEWEST, identifiers // requests)):,.0f}"]
        for name in ALGORITHMS
        for requests in REQUESTS.get(name, (1,))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--identifiers", type=int, default=20_000)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    asked = parser.parse_args()
    head = ["algorithm", "requests in the window", "bytes for an identifier"]
    text = report.table(head, rows(asked.identifiers))
    if asked.write:
        report.publish("memory", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
