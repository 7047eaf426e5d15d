"""The program that reads configuration files for a serving sidecar.

On its input comes a `Request`, pickled. Its answer is an `Answer`, and then of each file a part, or its path
where the part is the one that the sidecar has. It runs at a low priority, and is gone afterwards with all
the memory that it took.
"""

import gc
import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from sidecar.infrastructure.config.loading import Reading, read
from sidecar.infrastructure.config.problems import ConfigurationError, Problem

#: Of 19 steps down.
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Request:
    path: Path
    environ: Mapping[str, str]
    #: Made of outlines.
    before: Reading


@dataclass(frozen=True, slots=True)
class Answer:
    """Either what was read, its parts still to come, or what is wrong."""

    reading: Reading | None = None
    parts: int = 0
    problems: tuple[Problem, ...] = ()


def answer(asked: BinaryIO, told: BinaryIO) -> None:
    request: Request = pickle.load(asked)  # noqa: S301 - from the process that started this one
    try:
        reading = read(request.path, request.environ, request.before)
    except ConfigurationError as error:
        pickle.dump(Answer(problems=error.problems), told)
        return
    pickle.dump(Answer(replace(reading, parts=()), len(reading.parts)), told)
    outlines = set(map(id, request.before.parts))
    for part in reading.parts:
        pickle.dump(part.path if id(part) in outlines else part, told)


def main() -> None:
    os.nice(NICENESS)
    gc.disable()  # what reading makes has no cycles, and looking for some takes most of the time
    answer(sys.stdin.buffer, sys.stdout.buffer)
