"""Tables of medians with their spread, on the screen and in docs/performance.md."""

import os
import platform
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The median, and what half of the rounds lay between."""
    if len(values) < 2:
        return f"{values[0]:,.{digits}f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """As Markdown that reads well as text, too: the first column left, the others right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(2, *(len(line[column]) for line in lines)) for column in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(f"| {' | '.join(_cells(line, widths))} |" for line in [lines[0], rule, *lines[1:]])


def _cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]


def machine() -> str:
    """Where the figures are from."""
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores of {model[1].strip() if model else platform.machine()}, Linux"
        f" {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    )


def publish(part: str, text: str) -> None:
    """Prints the text, and puts it in the place of this part of the document."""
    print(text)
    begin, end = f"<!-- {part}: written by its command -->", f"<!-- end of {part} -->"
    before, found, rest = DOCUMENT.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise RuntimeError(f"{DOCUMENT} has no place for {part}")
    DOCUMENT.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
