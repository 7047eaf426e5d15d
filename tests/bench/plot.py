"""The comparison as a picture: CPU for a decision, and how long callers wait at half load."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.bench.report import median

_OWN, _STORE, _TAIL = "#2f6f9f", "#c9792b", "#9db8cc"


Results = Mapping[str, Mapping[str, Sequence[float]]]


def draw(flooded: Results, paced: Results, file: Path) -> None:
    # The same figures make the same file.
    mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names = list(flooded)[::-1]
    own, store = ([median(flooded[name][part]) for name in names] for part in ("cpu", "store_cpu"))
    left.barh(names, own, color=_OWN, label="the server")
    left.barh(names, store, left=own, color=_STORE, label="its store")
    left.set_xlabel("CPU for a decision, µs")
    left.legend(loc="lower right", frameon=False)
    for part, color in (("p99.9", _TAIL), ("p99", _OWN)):
        right.barh(names, [median(paced[name][part]) for name in names], color=color, label=part)
    right.set_xlabel("wait at half of what each can take, ms")
    right.legend(loc="lower right", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Date": None})
