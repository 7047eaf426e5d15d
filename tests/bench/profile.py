"""Where the time of the hot path goes: its ten costliest functions.

    python -m tests.bench.profile [--seconds S] [--refusing] [--write]

The sidecar is asked as much as it can take while py-spy looks at it, or, where py-spy is not installed or may
not look, in a run of its own under cProfile, which slows small functions more than large ones.
"""

import argparse
import pstats
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.bench.contenders import callers, config, rule
from tests.bench.load import apart, closed
from tests.bench.report import publish, table
from tests.bench.stage import OTHER_CORES, SERVER_CORES, Served, Stage, on, running
from tests.parts import SEARCH_PATH
from tests.sidecar_process import SidecarProcess

_HOUSE = Path(__file__).parents[2]
SHOWN, PER_SECOND = 10, 500
#: Function → part of the samples, or of the time, that is its own; and with those that it calls.
Shares = dict[str, tuple[float, float]]
#: py-spy sees no compiled code: what uvloop itself does is time of the function that started it.
_LOOP = "the event loop: waiting, reading, writing"


def asked(process: SidecarProcess, refusing: bool) -> Served:
    status = b"429" if refusing else b"200"
    return Served("sidecar", process.port, process.pid, callers(), status=status)


def rules(refusing: bool) -> dict[str, object]:
    spent = rule(algorithm="fixed_window", limit=1, window_seconds=31_536_000)
    return config(spent if refusing else rule())


def sampled(seconds: float, refusing: bool) -> Shares | None:
    """By py-spy; None where it cannot."""
    if (spy := shutil.which("py-spy", path=SEARCH_PATH)) is None:
        return None
    with Stage() as stage:
        process = stage.sidecar(rules(refusing), stage.store().url)
        served, found = asked(process, refusing), stage.directory / "stacks"
        apart(OTHER_CORES, closed, served.load(1.0))
        look = ["record", "--pid", f"{process.pid}", "--rate", f"{PER_SECOND}", "--duration", f"{seconds:g}"]
        command = [spy, *look, "--format", "raw", "--output", str(found), "--threads"]
        looking = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # Longer than it looks: it takes a moment to begin.
        apart(OTHER_CORES, closed, served.load(seconds + 1.0))
        _, said = looking.communicate()
        if looking.returncode:
            print(f"py-spy: {said.strip()}", file=sys.stderr)
            return None
        return shares_of_stacks(found.read_text().splitlines())


def shares_of_stacks(lines: Iterable[str]) -> Shares:
    """From `thread;outer (file:line);inner (file:line) count`; other threads decide nothing."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        thread, *called = stack.split(";")
        if "MainThread" not in thread or not called or not count.isdigit():
            continue
        frames = [_frame(frame) for frame in called]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            within[frame] += int(count)
    total = own.total()
    return {name: (own[name] / total, within[name] / total) for name in within}


def _frame(frame: str) -> str:
    """Without the line: a function is one."""
    name, _, place = frame.rpartition(" (")
    return _LOOP if name.endswith("Runner.run") else f"{name} ({_short(place.rpartition(':')[0])})"


def _short(path: str) -> str:
    place = Path(path)
    if place.is_relative_to(_HOUSE):
        return str(place.relative_to(_HOUSE))
    return "/".join(place.parts[-3:])


def traced(seconds: float, refusing: bool) -> Shares:
    """By cProfile, which writes when the sidecar has ended."""
    with Stage() as stage:
        process = stage.sidecar(rules(refusing), stage.store().url)
        served, found = asked(process, refusing), stage.directory / "profile"
        process.stop()
        command = [sys.executable, "-m", "cProfile", "-o", str(found), "-m", "sidecar", "serve", "-c"]
        with on(SERVER_CORES), running([*command, str(process.file)], process.port):
            answers = apart(OTHER_CORES, closed, served.load(seconds)).answers
        return shares_of_profile(pstats.Stats(str(found)), answers // 20)


def shares_of_profile(stats: pstats.Stats, calls: int) -> Shares:
    """Of functions with so many calls: those with fewer belong to the start."""
    profile = stats.get_stats_profile()
    hot = {n: of for n, of in profile.func_profiles.items() if int(of.ncalls.partition("/")[0]) >= calls}
    total = sum(of.tottime for of in hot.values())
    return {
        f"{n} ({_short(of.file_name)})": (of.tottime / total, of.cumtime / total) for n, of in hot.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--refusing", action="store_true", help="callers who have used up their limit")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    said = parser.parse_args()
    shares = sampled(said.seconds, said.refusing)
    if shares is None:
        shares = traced(said.seconds, said.refusing)
    costliest = sorted(shares.items(), key=lambda of: -of[1][0])[:SHOWN]
    rows = [[name, f"{own:.1%}", f"{within:.1%}"] for name, (own, within) in costliest]
    text = table(["function", "own time", "with those it calls"], rows)
    if said.write:
        publish("profile", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
