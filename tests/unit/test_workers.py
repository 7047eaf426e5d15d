"""Looking after processes: which are started again, when, and how they are ended. They are `sh` here."""

import asyncio
import logging
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from sidecar import workers
from tests.parts import until

LOGGER = "sidecar.workers"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "BACKOFF_SECONDS", (0.01, 0.08))
    monkeypatch.setattr(workers, "STOP_SECONDS", 0.2)


@contextmanager
def kept(script: str, folder: Path, number: int = 1) -> Iterator[tuple[asyncio.Event, "asyncio.Task[int]"]]:
    """So many processes of a shell script, and what ends them."""
    stopping = asyncio.Event()
    made = workers._Workers(Path("none"), folder, None, stopping)
    made._command = ["sh", "-c", script]
    running = asyncio.create_task(made.run(number))
    yield stopping, running
    assert running.done()


async def died(caplog: pytest.LogCaptureFixture, times: int) -> list[logging.LogRecord]:
    """The first lines about a process that died, when there are so many."""

    def found() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.getMessage() == "a worker died"]

    await until(lambda: len(found()) >= times, "it has died so often", seconds=30)
    return found()[:times]


async def test_one_that_dies_at_once_is_started_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for each time, with its exit code and the pause, which has a bound."""
    monkeypatch.setattr(workers, "monotonic", lambda: 0.0)
    with kept("exit 7", tmp_path) as (stopping, running):
        lines = await died(caplog, 5)
        stopping.set()
        assert await running == 0
    assert [(vars(line)["status"], vars(line)["worker"]) for line in lines] == [(7, 0)] * 5
    assert [vars(line)["restart_in_seconds"] for line in lines] == [0.01, 0.02, 0.04, 0.08, 0.08]


async def test_one_that_lived_for_a_while_is_started_at_once_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed long ago does not count."""
    monkeypatch.setattr(workers, "monotonic", map(float, count()).__next__)
    with kept("exit 7", tmp_path) as (stopping, running):
        lines = await died(caplog, 3)
        stopping.set()
        await running
    assert [vars(line)["restart_in_seconds"] for line in lines] == [0.01] * 3


async def test_one_that_cannot_be_made_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine may have no room for a process at the moment."""
    stopping = asyncio.Event()
    made = workers._Workers(Path("none"), tmp_path, None, stopping)
    made._command = [f"{tmp_path}/none"]
    running = asyncio.create_task(made.run(1))
    lines = await died(caplog, 2)
    stopping.set()
    assert await running == 0
    assert "No such file" in vars(lines[1])["status"]


async def test_one_that_does_not_end_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After the time that draining may take."""
    script = f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    with kept(script, tmp_path) as (stopping, running):
        await until((tmp_path / "up").exists, "it runs")
        stopping.set()
        assert await running == 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "a worker does not end and is killed"
    ]


async def test_a_hangup_is_told_to_those_who_listen_and_ends_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that is only starting has no handler yet; it is about to read the files anyway."""
    script = f"touch {tmp_path}/$SIDECAR_WORKER; exec sleep 60"
    with kept(script, tmp_path, 2) as (stopping, running):
        await until(lambda: {"0", "1"} <= {each.name for each in tmp_path.iterdir()}, "both run")
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0)  # the handler's turn
        await asyncio.sleep(0)
        stopping.set()
        assert await running == 0
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_what_one_that_died_said_about_now_is_gone_and_what_it_counted_stays(tmp_path: Path) -> None:
    """Files of metrics: gauges of the living end with their process, counters are for good."""
    names = ("counter_0.db", "gauge_livemin_0.db", "gauge_livemax_0.db", "gauge_livemax_1.db")
    script = "; ".join(f"touch {tmp_path}/{name}" for name in names)
    with kept(script, tmp_path) as (stopping, running):
        await until((tmp_path / names[-1]).exists, "it has run")
        stopping.set()
        await running
    assert {each.name for each in tmp_path.iterdir()} == {"counter_0.db", "gauge_livemax_1.db"}


def test_what_a_killed_one_left_behind_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders of those who live are locked; what has no lock may be anybody's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, foreign = tmp_path / "sidecar-metrics-dead", tmp_path / "sidecar-metrics-foreign"
    for folder in (abandoned, foreign):
        folder.mkdir()
    (abandoned / "lock").touch()
    with workers._metrics_folder() as one, workers._metrics_folder() as other:
        assert set(tmp_path.iterdir()) == {foreign, one, other}
    assert list(tmp_path.iterdir()) == [foreign]
