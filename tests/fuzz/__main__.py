"""The command; see the package."""

import argparse
import sys
import traceback

from tests.fuzz.running import run_for
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--only", nargs="*", default=sorted(TARGETS), choices=sorted(TARGETS), metavar="NAME")
    given = parser.parse_args()
    failed, total = [], 0
    for name in given.only:
        try:
            tried = run_for(TARGETS[name], given.seconds / len(given.only))
        except Exception:
            failed.append(name)
            traceback.print_exc()
            continue
        total += tried
        print(f"{name:<16} {tried:>9,} inputs", flush=True)
    print(
        f"{'together':<16} {total:>9,} inputs; "
        + (f"failed: {', '.join(failed)}" if failed else "nothing found")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
