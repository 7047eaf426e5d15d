"""How long a request takes to find its checks, with 10, 1,000 and 10,000 rules in one client.

    python -m tests.bench.matching [rounds]

The same requests in each case, all of which meet the same rules: the first ten, which every case has. Rounds
are interleaved, so that a busy moment of the machine falls on all cases alike.
"""

import statistics
import sys
from collections.abc import Iterator
from time import perf_counter_ns

from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Rule
from sidecar.domain.ruleset import Policy, RuleSet

SIZES = (10, 1_000, 10_000)
REPEATS = 100


def routes() -> Iterator[str]:
    """Without end: one exact route, one with segments, one prefix, of one service after the other."""
    service = 0
    while True:
        yield f"/api/service-{service}/videos"
        yield f"/api/service-{service}/users/{{id}}/posts"
        yield f"/api/service-{service}/files/*"
        service += 1


def rule_set(size: int) -> RuleSet:
    rules = [
        Rule(id=f"r{number}", route=route, identifier_type="session_id", limit=100, window_seconds=60)
        for number, route in zip(range(size), routes(), strict=False)
    ]
    return RuleSet([Client(id="c", rules=tuple(rules))], Policy(default_client="c"))


def requests() -> list[RequestMetadata]:
    targets = [
        "/api/service-0/videos?page=2",
        "/api/service-0/users/7/posts",
        "/api/service-1/files/a/b/c.txt",
        "/api/service-2/users/%37//posts",
        "/api/service-2/none",
        "/",
    ]
    return [RequestMetadata(method="GET", target=target, session_id="s1") for target in targets]


def microseconds_per_request(rules: RuleSet, asked: list[RequestMetadata]) -> float:
    begun = perf_counter_ns()
    for _ in range(REPEATS):
        for request in asked:
            rules.checks_for(request)
    return (perf_counter_ns() - begun) / (REPEATS * len(asked)) / 1000


def measure(rounds: int) -> dict[int, list[float]]:
    cases = {size: rule_set(size) for size in SIZES}
    asked = requests()
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size, rules in cases.items():
            times[size].append(microseconds_per_request(rules, asked))
    return times


def main(rounds: int) -> None:
    times = measure(rounds)
    first = statistics.median(times[SIZES[0]])
    print(f"{'rules':>8} {'median':>10} {'quartiles':>19} {'ratio':>7}")
    for size, taken in times.items():
        low, median, high = statistics.quantiles(taken, n=4)
        print(f"{size:>8,} {median:>7.2f} µs {low:>7.2f} - {high:.2f} µs {median / first:>7.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
