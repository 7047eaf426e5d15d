"""`python -m tests.proxies.table` plays the whole matrix and prints it as Markdown, for docs/proxies.md."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.proxies.all import PROXIES
from tests.proxies.lab import lab
from tests.proxies.matrix import Place, Seen, places, scenarios

HEAD = "| proxy | scenario | status | headers | connection |\n|---|---|---|---|---|"


def main() -> None:
    """In the order of the proxies, which is not that in which it is played."""
    lines = {place: list(_played(place)) for place in places(PROXIES)}
    print(HEAD)
    for proxy in PROXIES:
        print(*(line for place in lines if place.proxy == proxy for line in lines[place]), sep="\n")


def _played(place: Place) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as directory,
        lab(place.proxy, Path(directory), fail_open=place.fail_open) as running,
    ):
        for scenario in scenarios(place):
            yield _line(place.proxy.name, scenario.name, scenario.play(running))


def _line(proxy: str, scenario: str, seen: Seen) -> str:
    headers = ", ".join(seen.headers) or "none of ours"
    return f"| {proxy} | {scenario} | {seen.status} | {headers} | {'kept' if seen.kept else 'closed'} |"


if __name__ == "__main__":
    main()
