"""The embedded store's append-only file without its end, as a crash of the machine may leave it."""

from collections.abc import Iterable
from pathlib import Path

from tests.faults.scene import Scene, asked, client_of, scene
from tests.raw_http import Connection

#: As much as some requests write, of which each writes more than `LEAST_BYTES`.
CUT_BYTES, LEAST_BYTES = 1500, 150


def cut_short(directory: Path, requests: int) -> tuple[set[int], set[int], dict[str, tuple[int, int]]]:
    """Numbers that were charged before and are counted afterwards; by client, what its two rules count."""
    with scene(directory, timeout_ms=5000, embedded=True) as stage:
        before = ask(stage, range(requests))
        stage.sidecar.stop()
        _cut(directory)
        stage.sidecar.start()
        counted = stage.counted()
        after = {number for counts in counted.values() for number in counts}
        agreeing = {word: (len(counted[word]), stage.together(word)) for word in ("allow", "deny")}
        # Of those without a limit: the other one may still be refused for what it did a second ago.
        more = [number for number in range(requests, requests + 6) if client_of(number) != "local"]
        assert ask(stage, more) == set(more)
        return before, after, agreeing


def ask(stage: Scene, numbers: Iterable[int]) -> set[int]:
    """Those of the requests that were allowed and counted."""
    allowed = set()
    with Connection(stage.sidecar.port) as connection:
        for number in numbers:
            connection.send(asked(number))
            reply = connection.answer()
            if reply.status == 200 and "x-ratelimit-degraded" not in reply.headers:
                allowed.add(number)
    return allowed


def _cut(directory: Path) -> None:
    (file,) = (directory / "store" / "valkey" / "appendonlydir").glob("*.incr.aof")
    with file.open("r+b") as written:
        written.truncate(file.stat().st_size - CUT_BYTES)
