"""The faults: how each begins and ends, and what it may take along."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.scene import Scene, Stage, limit_files, scene
from tests.parts import alive

#: What a decision may wait for the store. Shorter than `SLOW_SECONDS`, or nothing would be amiss.
TIMEOUT_MS = 100
SLOW_SECONDS = 0.2
#: Where nothing is to be decided without the store, however busy the machine is.
PATIENT_MS = 5000


def _nothing(scene: Scene, seconds: float = 0) -> None:
    """Nothing has to be done."""


@dataclass(frozen=True)
class Fault:
    """`begin` is told how many seconds it will last; `end` returns when the store could answer again.

    While it is `away` decisions are made without the store. Of what was counted in the last `loses_seconds`
    before it, some may be gone afterwards. A `brief` one may be over before anybody has noticed.
    """

    name: str
    begin: Callable[[Scene, float], None] = _nothing
    end: Callable[[Scene], None] = _nothing
    away: bool = True
    embedded: bool = False
    ahead: bool = False
    brief: bool = False
    #: What it is played on: a store of several servers brings another.
    stage: Stage = scene
    loses_seconds: float = 0.0

    @property
    def timeout_ms(self) -> int:
        return TIMEOUT_MS if self.away else PATIENT_MS


def _pause(scene: Scene, seconds: float) -> None:
    scene.tell("CLIENT", "PAUSE", round(seconds * 1000), "ALL")


def _until_it_answers(scene: Scene) -> None:
    scene.tell("PING")


def _fill_disk(scene: Scene, seconds: float) -> None:
    """The append-only file may not grow any more; whatever else there is is smaller."""
    files = (scene.store.directory / "appendonlydir").iterdir()
    limit_files(scene.store.pid, max(file.stat().st_size for file in files))


def _free_disk(scene: Scene) -> None:
    limit_files(scene.store.pid, -1)


def _kill_embedded(scene: Scene, seconds: float) -> None:
    started = scene.sidecar.logged("embedded store started") + scene.sidecar.logged(
        "embedded store restarted"
    )
    pid = started[-1]["pid"]
    scene.signal(signal.SIGKILL, pid)
    while alive(pid):
        time.sleep(0.001)


def _until_restarted(scene: Scene) -> None:
    """The sidecar does it by itself."""
    deadline = time.monotonic() + 30
    while not scene.sidecar.logged("embedded store restarted"):
        assert time.monotonic() < deadline, scene.sidecar.log
        time.sleep(0.01)


FAULTS = (
    Fault("store killed", lambda s, _: s.store.stop(), lambda s: s.store.start()),
    Fault("stopped (SIGSTOP)", lambda s, _: s.signal(signal.SIGSTOP), lambda s: s.signal(signal.SIGCONT)),
    Fault("slow by 200 ms", lambda s, _: s.way.slow(SLOW_SECONDS), lambda s: s.way.restore()),
    Fault("CLIENT PAUSE", _pause, _until_it_answers),
    Fault("reset in mid-reply", lambda s, _: s.way.tear_replies(), lambda s: s.way.restore()),
    Fault("reply dropped after commit", lambda s, _: s.way.drop_replies(), lambda s: s.way.restore()),
    Fault(
        "SCRIPT FLUSH under load",
        lambda s, _: s.keep_telling("SCRIPT", "FLUSH"),
        lambda s: s.stop_telling(),
        away=False,
    ),
    Fault(
        "REPLICAOF",
        lambda s, _: s.tell("REPLICAOF", "127.0.0.1", 1),
        lambda s: s.tell("REPLICAOF", "NO", "ONE"),
    ),
    Fault(
        "out of memory",
        lambda s, _: s.tell("CONFIG", "SET", "maxmemory", 1),
        lambda s: s.tell("CONFIG", "SET", "maxmemory", 0),
    ),
    Fault("disk full", _fill_disk, _free_disk),
    Fault(
        "embedded store killed",
        _kill_embedded,
        _until_restarted,
        embedded=True,
        brief=True,
        # What the server had not handed to the kernel: a second at the most, by its own word.
        loses_seconds=1.0,
    ),
    Fault("clock an hour ahead", away=False, ahead=True),
)
