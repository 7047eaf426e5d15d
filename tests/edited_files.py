"""A sidecar whose files are edited while it serves, and the ways in which editors and Kubernetes do that."""

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.parts import until
from tests.sidecar_process import SidecarProcess

REFUSED = "the configuration was refused; the last good one stays"
TAKEN_OVER = "the configuration was reloaded"
#: From the last byte of a file until it is in force: the watcher waits for what follows closely, and reads.
SECONDS = 5


def as_file(config: Mapping[str, Any]) -> str:
    """JSON, which is YAML, too: of what is cut off anywhere, nothing is left that could be read."""
    return json.dumps(config, indent=2) + "\n"


def renamed_over(file: Path, text: str) -> None:
    """As most editors save: a new file beside the old one, which then takes its place."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    os.replace(new, file)


def swapped(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """As Kubernetes updates a mounted ConfigMap: a new folder, and `..data` pointed to it in one step."""
    new, data, coming = folder / name, folder / "..data", folder / "..data_tmp"
    before = data.resolve() if data.is_symlink() else None
    new.mkdir(parents=True)
    for each, text in files.items():
        (new / each).write_text(text)
    coming.symlink_to(name)
    os.replace(coming, data)
    for each in files:
        if not (folder / each).is_symlink():
            (folder / each).symlink_to(f"..data/{each}")
    if before is not None:
        shutil.rmtree(before)


class EditedSidecar(SidecarProcess):
    """Its log is beside `directory`, so that what it writes there is no change in a folder that it watches.

    Refused files, which it logs as errors, are what is tested: they do not make its end a failure.
    """

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, config)
        self._log_file = directory.with_name(f"{directory.name}.log")

    def text(self, **changed: Any) -> str:
        """The main file with these keys changed, from now on."""
        self._config = {**self._config, **changed}
        return as_file(self._config)

    def settings(self, name: str) -> Any:
        """What stands in the main file under this key."""
        return self._config[name]

    def refusals(self) -> list[list[str]]:
        """The problems of each configuration that was refused."""
        return [entry["problems"] for entry in self.logged(REFUSED)]

    def is_good(self) -> bool:
        """What the metric says: the files are what is in force."""
        page = self.admin("GET", "/metrics", key=None).body.decode()
        return "rate_limit_config_last_reload_successful 1.0" in page

    async def refuses(self, times: int) -> None:
        await until(lambda: len(self.refusals()) >= times, f"refusal {times} is logged", seconds=SECONDS)
        await until(lambda: not self.is_good(), "the metric says so", seconds=SECONDS)

    def stop(self, *, expected: Collection[str] = (REFUSED,)) -> None:
        super().stop(expected=expected)
