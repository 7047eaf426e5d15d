"""Reading the files again while requests are decided; what is done here is done in a thread.

A few kilobytes are read in this process. Reading more takes seconds, of which every request would have its
share, and leaves memory in pieces: that is done by a process of its own (`reader_process.py`), which hands
over what differs.
"""

import pickle
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sidecar.application.pieces import in_pieces
from sidecar.infrastructure.child_process import python
from sidecar.infrastructure.config import reader_process
from sidecar.infrastructure.config.loading import Configuration, configuration, load
from sidecar.infrastructure.config.main_file import client_files
from sidecar.infrastructure.config.parts import Part
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.reader_process import Answer, Request

#: All files together; reading so much takes some 50 ms.
SMALL_BYTES = 128 * 1024


class ReadingFailed(Exception):
    """The process that reads did not come to its end."""


class Rereading:
    """One reading of the files that `before` came from, as they are now: `begin`, then `take`, and `end`."""

    def __init__(self, before: Configuration) -> None:
        self._before: Configuration = before
        self._process: subprocess.Popen[bytes] | None = None
        self._answer = Answer()
        self._read: Configuration | None = None
        self._ended = False

    def begin(self) -> None:
        """Returns when the files were read; raises `ConfigurationError`."""
        before = self._before
        if _size(before) <= SMALL_BYTES or (process := self._started()) is None:
            self._read = load(before.path, before.environ, before.reading)
            return
        self._answer = self._asked(process)
        if self._answer.problems:
            raise ConfigurationError(self._answer.problems)

    @property
    def brings_much(self) -> bool:
        """Whether objects come by the thousand, from another process."""
        return self._process is not None

    def take(self) -> Configuration:
        if self._read:
            return self._read
        before = self._before
        parts = tuple(self._parts())
        assert self._answer.reading  # noqa: S101 - or there were problems
        reading = replace(self._answer.reading, parts=parts)
        return configuration(reading, before.path, before.environ, before.reading)

    def end(self) -> None:
        """In any case; from another thread it ends what goes on in this one."""
        self._ended = True
        if process := self._process:
            process.kill()
            # Closes the pipes, one of which may hold what nobody reads any more, and waits.
            with suppress(BrokenPipeError), process:
                pass

    def _parts(self) -> Iterator[Part]:
        known = {part.path: part for part in self._before.reading.parts}
        for _ in in_pieces(range(self._answer.parts)):
            told: Part | Path = self._next()
            yield told if isinstance(told, Part) else known[told]

    def _started(self) -> "subprocess.Popen[bytes] | None":
        """Nothing where there can be no more processes at the moment."""
        command = [*python(), "-c", f"from {reader_process.__name__} import main; main()"]
        pipe = subprocess.PIPE
        try:
            # Nothing is to be done between fork and exec, so no copy is made of what this process holds.
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0)  # noqa: S603
        except OSError:
            return None
        if self._ended:  # meanwhile
            self._process.kill()
        return self._process

    def _asked(self, process: "subprocess.Popen[bytes]") -> Answer:
        assert process.stdin  # noqa: S101
        before, parts = self._before, self._before.reading.parts
        bare = replace(before.reading, parts=())
        try:
            with process.stdin as pipe:
                pickle.dump(Request(before.path, before.environ, bare, len(parts)), pipe)
                for part in in_pieces(parts):
                    pickle.dump(part.outline(), pipe)
        except (BrokenPipeError, ValueError):  # it has died, or has been ended
            pass  # what it told, or did not, says more
        answer: Answer = self._next()
        return answer

    def _next(self) -> Any:
        assert self._process  # noqa: S101
        assert self._process.stdout  # noqa: S101
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - from a process of our own
        except (EOFError, ValueError, pickle.UnpicklingError) as error:
            raise ReadingFailed(f"the reading process ended with {self._process.wait()}") from error


def _size(before: Configuration) -> int:
    """Of the files that were read, and those that have come since."""
    found = {*before.files, *client_files(before.path, before.settings.clients_from)}
    return sum(map(_bytes, found))


def _bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # what is wrong with it is told by whoever reads it
        return 0
