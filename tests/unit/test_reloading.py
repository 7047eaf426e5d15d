"""Taking over the files again where it fails for another reason than what is in them."""

import asyncio
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar import reloading
from sidecar.infrastructure.child_process import python
from sidecar.infrastructure.config import Configuration, load, rereading
from sidecar.infrastructure.config.rereading import ReadingFailed
from sidecar.reloading import Reloader
from tests.parts import until


class TakenOver:
    """What the reloader did, in order."""

    def __init__(self) -> None:
        self.configurations: list[Configuration] = []
        self.results: list[bool] = []

    async def apply(self, configuration: Configuration) -> list[Iterator[object]]:
        self.configurations.append(configuration)
        return []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "sidecar.yaml"
    made.write_text("clients: [{id: a}]\n")
    return made


async def test_files_whose_reading_failed_are_tried_again_though_nobody_touches_them(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then what is in force is said not to be what is in the files."""
    monkeypatch.setattr(rereading, "SMALL_BYTES", 0)
    monkeypatch.setattr(rereading, "python", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    taken = TakenOver()
    reloader = Reloader(load(file, {}), taken.apply, taken.results.append)
    file.write_text("clients: [{id: a}, {id: b}]\n")
    with pytest.raises(ReadingFailed):
        await reloader.reload()
    assert taken.results == [False]
    assert "could not be taken over (ReadingFailed" in reloader.effective()["problems"][0]

    monkeypatch.setattr(rereading, "python", python)
    monkeypatch.setattr(reloading, "LOOK_MS", 50)
    monkeypatch.setattr(reloading, "AGAIN_SECONDS", 0)
    monkeypatch.setattr(reloader, "_apply", [].__getitem__)
    with pytest.raises(TypeError):  # whatever fails
        await reloader.reload()
    monkeypatch.setattr(reloader, "_apply", taken.apply)
    watching = asyncio.create_task(reloader.watch())
    await until(lambda: taken.results[-1], "the files are in force")
    watching.cancel()
    assert [client.id for client in taken.configurations[-1].clients] == ["a", "b"]
    assert reloader.effective()["problems"] == []


@pytest.mark.parametrize("name", ["a.yaml", "b.yaml"])
async def test_what_changes_between_reading_and_serving_is_taken_over(file: Path, name: str) -> None:
    """With many clients, starting takes seconds; a file may come in them, too."""
    file.write_text("clients_from: '*.yaml'\n")
    (file.parent / "a.yaml").write_text("clients: [{id: a}]\n")
    configuration = load(file, {})
    (file.parent / name).write_text("clients: [{id: b}]\n")
    taken = TakenOver()
    watching = asyncio.create_task(Reloader(configuration, taken.apply, taken.results.append).watch())
    await until(lambda: taken.results == [True], "the files are in force")
    watching.cancel()
    assert "b" in taken.configurations[0].sources


async def test_a_folder_that_cannot_be_read_for_a_while_does_not_end_the_watch(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in force stays; changes that come later are taken over."""
    folder = file.parent / "d"
    folder.mkdir()
    file.write_text("clients_from: d/*.yaml\n")
    (folder / "a.yaml").write_text("clients: [{id: a}]\n")
    monkeypatch.setattr(reloading, "LOOK_MS", 50)
    taken = TakenOver()
    reloader = Reloader(load(file, {}), taken.apply, taken.results.append)
    watching = asyncio.create_task(reloader.watch())
    folder.rename(file.parent / "e")
    folder.symlink_to("d")  # whoever is allowed everything cannot read that either
    await until(lambda: taken.results == [False], "it is refused")
    assert f"{file}:1: clients_from: the folder {folder} cannot be read" in reloader.problems[0]
    with monkeypatch.context() as forbidden:
        forbidden.setattr(os, "listdir", _forbidden)
        for _ in range(3):
            await reloader.try_reload()
    folder.unlink()
    (file.parent / "e").rename(folder)
    (folder / "a.yaml").write_text("clients: [{id: b}]\n")
    await until(lambda: taken.results[-1], "the files are in force")
    watching.cancel()
    assert [client.id for client in taken.configurations[-1].clients] == ["b"]


def _forbidden(folder: Path) -> list[str]:
    raise PermissionError(errno.EACCES, "Permission denied", folder)
