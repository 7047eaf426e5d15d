"""Programs that run beside the sidecar and end when it does."""

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path

#: Seconds a program may take to end by itself before it is killed.
STOP_SECONDS = 5.0


def python() -> list[str]:
    """Python, which is not to import what lies about in the working directory, unless that is us."""
    here = Path(__file__).parents[2]
    return [sys.executable, *(["-P"] if here != Path.cwd() else [])]


def dies_with_us() -> Callable[[], None] | None:
    """A `preexec_fn`: on Linux the kernel ends the program when we end, even if we are killed.

    It runs in the child between fork and exec: a fork does not inherit the setting, an exec keeps it.
    SIGTERM, so that the program still writes what it holds.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # here: a forked child should not load libraries
    parent = os.getpid()
    pr_set_pdeathsig = 1

    def ask() -> None:
        libc.prctl(pr_set_pdeathsig, int(signal.SIGTERM))
        if os.getppid() != parent:  # we ended before the call, so no signal will come
            os._exit(1)

    return ask


async def end(process: Process) -> None:
    """SIGTERM, and SIGKILL if that is not obeyed in time. Returns when the process is gone."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
