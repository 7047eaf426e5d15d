"""The command; see the package."""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz import admin_port
from tests.fuzz.running import Target, run_for
from tests.fuzz.targets import TARGETS
from tests.sidecar_process import SidecarProcess

NAMES = sorted([*TARGETS, "admin-port"])


@contextmanager
def prepared(name: str) -> Iterator[Target]:
    if name in TARGETS:
        yield TARGETS[name]
        return
    with tempfile.TemporaryDirectory() as folder, SidecarProcess(Path(folder), admin_port.CONFIG) as sidecar:
        yield admin_port.target(sidecar)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES, metavar="NAME")
    given = parser.parse_args()
    failed, total = [], 0
    for name in given.only:
        try:
            with prepared(name) as target:
                tried = run_for(target, given.seconds / len(given.only))
        except Exception:
            failed.append(name)
            traceback.print_exc()
            continue
        total += tried
        print(f"{name:<16} {tried:>9,} inputs", flush=True)
    found = f"failed: {', '.join(failed)}" if failed else "nothing found"
    print(f"{'together':<16} {total:>9,} inputs; {found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
