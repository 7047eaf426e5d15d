"""Taking over a changed configuration while serving: on SIGHUP, when asked, and when a file changes.

A good one is swapped in whole, between two requests; of a bad one every error is logged, and the last good
one stays. Being told of changes makes them take effect at once; looking every second makes them take effect
even if nobody tells: in a folder that was not there or has taken the place of another, on a network's disk.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from pydantic import BaseModel
from watchfiles import awatch

from sidecar.application.pieces import in_thread, let_go
from sidecar.event_loop import without_collections
from sidecar.infrastructure.config.loading import Configuration
from sidecar.infrastructure.config.masking import masked
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.rereading import Rereading
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.validation import Rejected

#: Files are often written in several steps: changes that follow each other closer than STEP are one, but for
#: no longer than DEBOUNCE.
STEP_MS, DEBOUNCE_MS = 50, 400
LOOK_MS = 1000
#: After a reading that failed for another reason than what is in the files.
AGAIN_SECONDS = 30
#: Settings that the running process was built with, all but those of `TAKEN_OVER` in them.
NEED_RESTART = ("store", "listen", "workers", "log_level", "app_env")
TAKEN_OVER = {
    "store": ("on_unavailable", "identifiers_alarm"),
    "listen": ("trusted_peers", "secret", "secret_header", "apis", "leave_seconds"),
}
_log = logging.getLogger("sidecar.config")


class Reloader:
    """Holds the configuration in force.

    `apply` puts a configuration in force and returns what is to be let go of then; `on_reload` is told
    whether one was taken over.
    """

    def __init__(
        self,
        configuration: Configuration,
        apply: Callable[[Configuration], Awaitable[list[Iterator[object]]]],
        on_reload: Callable[[bool], None],
    ) -> None:
        self.configuration = configuration
        self._at_start = configuration.settings
        #: What is wrong with the files as they are now; empty when they are in force.
        self.problems: tuple[str, ...] = ()
        self._apply = apply
        self._on_reload = on_reload
        self._one_at_a_time = asyncio.Lock()
        #: Those with problems, which need not be files of the configuration in force.
        self._broken: frozenset[Path] = frozenset()
        self._read = self._fingerprint()
        #: When the same files are tried once more.
        self._again_at = inf

    async def reload(self) -> Configuration:
        """Take over the files as they are now. Raises `ConfigurationError`; the last good one stays then."""
        async with self._one_at_a_time:
            try:
                configuration = await self._take_over()
            except ConfigurationError as error:
                self._refused(error)
                raise
            except Exception as error:
                self._failed(error)
                raise
            self.problems = ()
            if settings := self._need_restart():
                _log.warning("changed settings that need a restart", extra={"settings": settings})
            self._on_reload(True)
            _log.info("the configuration was reloaded", extra={"clients": len(configuration.clients)})
            return configuration

    def effective(self) -> dict[str, Any]:
        """What is in force of the files, its secrets masked, and what is wrong with the files as they are.

        Of what needs a restart it is what the process runs with; `warnings` say where the files differ.
        """
        found = self.configuration
        warnings = [str(warning) for warning in found.warnings]
        return {
            "settings": masked(_running(self._at_start, found.settings)),
            "files": [str(file) for file in found.files],
            "clients": {client_id: str(file) for client_id, file in found.sources.items()},
            "warnings": warnings + [f"needs a restart: {name}" for name in self._need_restart()],
            "problems": list(self.problems),
        }

    async def reload_for_api(self) -> dict[str, Any]:
        """Reload; raises `Rejected` with the problems of the files, each at its place."""
        try:
            await self.reload()
        except ConfigurationError as error:
            raise Rejected(
                ((f"{each.file}:{each.line}" if each.line else str(each.file), each.where), each.message)
                for each in error.problems
            ) from None
        return await in_thread(self.effective)

    async def watch(self) -> None:
        """Reload whenever a file changes, until cancelled."""
        # Starting takes seconds where there are many clients: what was read first may have changed since.
        if not await in_thread(self.configuration.reading.is_unchanged):
            await self.try_reload()
        told = ""
        while True:
            try:
                await self._watch_folders(self.folders())
            except (OSError, RuntimeError) as error:  # one has gone meanwhile, or no more can be watched
                if told != (told := str(error)):
                    _log.warning("folders are not watched, but looked at every second", extra={"error": told})
                await asyncio.sleep(LOOK_MS / 1000)
                await self._look()

    async def _watch_folders(self, folders: frozenset[Path]) -> None:
        """Returns when others are to be watched."""
        async for _ in awatch(
            *folders,
            recursive=False,
            step=STEP_MS,
            debounce=DEBOUNCE_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
        ):
            await self._look()
            if self.folders() != folders:
                return

    async def _look(self) -> None:
        if self._fingerprint() != self._read or monotonic() > self._again_at:
            await self.try_reload()

    async def try_reload(self) -> None:
        """Reload; what is wrong is in the log."""
        try:
            await self.reload()
        except ConfigurationError:
            pass
        except Exception:
            _log.exception("the configuration could not be reloaded; the last good one stays")

    def folders(self) -> frozenset[Path]:
        """Those whose changes may be changes of the configuration.

        Folders, not files: an editor puts a new file in the place of the old one, and Kubernetes swaps a
        symbolic link beside it.
        """
        return frozenset(folder for folder in self._folders() if folder.is_dir())

    def _fingerprint(self) -> tuple[object, ...]:
        """Differs when the files do; what else changes in their folders is not worth a reload."""
        files = [_state(file) for file in sorted({*self.configuration.files, *self._broken})]
        return (*files, *map(_names, self.configuration.reading.folders))

    async def _take_over(self) -> Configuration:
        rereading = await self._read_again()
        try:
            with without_collections() if rereading.brings_much else nullcontext():
                configuration = await in_thread(rereading.take)
                left = await self._apply(configuration)
                left += self.configuration.contents()
                self.configuration = configuration
        finally:
            await in_thread(rereading.end)
            del rereading  # it holds what is to go
        await let_go(left)
        return configuration

    async def _read_again(self) -> Rereading:
        """Read the files; once more where only their problems say that changes of further ones count."""
        while True:
            self._read, self._again_at = self._fingerprint(), inf
            try:
                return await self._begun()
            except ConfigurationError as error:
                broken = frozenset(problem.file for problem in error.problems)
                if broken <= self._broken.union(self.configuration.files):
                    raise
                self._broken = broken

    async def _begun(self) -> Rereading:
        rereading = Rereading(self.configuration)
        try:
            # Reading ten thousand rules takes seconds, in which requests go on being decided.
            await in_thread(rereading.begin)
        except BaseException:
            await in_thread(rereading.end)
            raise
        return rereading

    def _folders(self) -> Iterator[Path]:
        for file in self.configuration.files:
            yield file.parent
            yield Path(os.path.realpath(file)).parent
        yield from self.configuration.reading.folders

    def _refused(self, error: ConfigurationError) -> None:
        self.problems = tuple(map(str, error.problems))
        self._on_reload(False)
        _log.error(
            "the configuration was refused; the last good one stays", extra={"problems": self.problems}
        )

    def _failed(self, error: Exception) -> None:
        """That was no fault of the files: a process may have been killed, for want of memory."""
        self._again_at = monotonic() + AGAIN_SECONDS
        again = f"they are tried again in {AGAIN_SECONDS} s"
        self.problems = (f"the files could not be taken over ({type(error).__name__}, see the log); {again}",)
        self._on_reload(False)

    def _need_restart(self) -> list[str]:
        """The settings in which the files differ from the running process."""
        new = self.configuration.settings
        return list(_differing(_running(self._at_start, new), new))


def _running(at_start: Settings, new: Settings) -> Settings:
    """The new settings as far as a running process takes them over."""
    kept = {name: getattr(at_start, name) for name in NEED_RESTART}
    for part, names in TAKEN_OVER.items():
        taken_over = {name: getattr(getattr(new, part), name) for name in names}
        kept[part] = kept[part].model_copy(update=taken_over)
    return new.model_copy(update=kept)


def _differing(one: BaseModel, other: BaseModel, parents: str = "") -> Iterator[str]:
    """The names of settings that differ, as `listen.admin`."""
    for name in type(one).model_fields:
        left, right = getattr(one, name), getattr(other, name)
        if left != right and isinstance(left, BaseModel) and isinstance(right, BaseModel):
            yield from _differing(left, right, f"{parents}{name}.")
        elif left != right:
            yield parents + name


def _names(folder: Path) -> list[str] | None:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return None


def _state(file: Path) -> tuple[str, int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return os.path.realpath(file), status.st_ino, status.st_mtime_ns, status.st_size
