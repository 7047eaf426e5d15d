"""The program that reads configuration files for a serving sidecar.

On its input comes a `Request`, pickled, and outlines of the parts that the sidecar has. Its answer is an
`Answer`, and then of each file a part, or its path where the sidecar has the part. It runs at a low priority,
and is gone afterwards with all the memory that it took.
"""

import gc
import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from sidecar.infrastructure.config.loading import Reading, read
from sidecar.infrastructure.config.problems import ConfigurationError, Problem

#: Of 19 steps down.
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Request:
    path: Path
    environ: Mapping[str, str]
    #: Its parts follow: so many outlines.
    before: Reading
    parts: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Either what was read, its parts still to come, or what is wrong."""

    reading: Reading | None = None
    parts: int = 0
    problems: tuple[Problem, ...] = ()


def answer(asked: BinaryIO, told: BinaryIO) -> None:
    request: Request = _next(asked)
    outlines = tuple(_next(asked) for _ in range(request.parts))
    try:
        reading = read(request.path, request.environ, replace(request.before, parts=outlines))
    except ConfigurationError as error:
        pickle.dump(Answer(problems=error.problems), told)
        return
    pickle.dump(Answer(replace(reading, parts=()), len(reading.parts)), told)
    known = set(map(id, outlines))
    for part in reading.parts:
        pickle.dump(part.path if id(part) in known else part, told)


def _next(asked: BinaryIO) -> Any:
    return pickle.load(asked)  # noqa: S301 - from the process that started this one


def main() -> None:
    with suppress(OSError):  # a sandbox may not let it
        os.nice(NICENESS)
    gc.disable()  # what reading makes has no cycles, and looking for some takes most of the time
    answer(sys.stdin.buffer, sys.stdout.buffer)
