"""Taking over the files again where it fails for another reason than what is in them."""

import asyncio
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
    with pytest.raises(TypeError):  # whatever that fails counts
        monkeypatch.setattr(reloader, "_apply", [].__getitem__)
        await reloader.reload()
    monkeypatch.setattr(reloader, "_apply", taken.apply)
    watching = asyncio.create_task(reloader.watch())
    await until(lambda: taken.results[-1], "the files are in force")
    watching.cancel()
    assert [client.id for client in taken.configurations[-1].clients] == ["a", "b"]
    assert reloader.effective()["problems"] == []
