"""`sidecar demo`, as `make run` runs it: on the ports of envoy.yaml, with a real Envoy and a real store."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sidecar import sample_service
from sidecar.demo import ENVOY_PORT
from tests.parts import alive, until

#: What the demo makes up unless it is given.
GIVEN = {"REDIS_URL", "SIDECAR_ADMIN_KEY"}
ENVOY = f"http://127.0.0.1:{ENVOY_PORT}"


@pytest.fixture(autouse=True)
def parts(valkey_binary: Path, envoy_binary: Path) -> None:
    """Without them there is nothing to show."""


@contextlib.asynccontextmanager
async def demo(*arguments: str | Path, **environ: str) -> AsyncIterator[Process]:
    """The command in a process of its own, and gone at the end, with what it left if it was killed."""
    inherited = {name: value for name, value in os.environ.items() if name not in GIVEN}
    # Not pytest's tmp_path, which is longer than a socket's path may be.
    with tempfile.TemporaryDirectory() as temporary:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sidecar", "demo", *arguments),
            stdout=PIPE,
            stderr=PIPE,
            env=inherited | {"TMPDIR": temporary} | environ,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.communicate(), 30)


async def welcomed(process: Process) -> str:
    """What it prints until all is ready. That another program has a port is a failure in CI only."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        return (await asyncio.wait_for(process.stdout.readuntil(b"Ctrl-C"), 30)).decode()
    except asyncio.IncompleteReadError:
        error = (await process.stderr.read()).decode()
    if await process.wait() == 3 and not os.environ.get("CI"):
        pytest.skip(error)
    pytest.fail(error)


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def children(process: Process) -> dict[str, int]:
    """The names and ids of the processes that it started."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            before, _, after = stat.read_text().rpartition(") ")
            pid, _, name = before.partition(" (")
            if int(after.split()[1]) == process.pid:
                found[name] = int(pid)
    return found


async def test_the_eleventh_request_within_a_minute_is_refused() -> None:
    async with demo() as process, aiohttp.ClientSession(ENVOY) as client:
        welcome = await welcomed(process)
        assert re.search(r"admin key +\S{16}", welcome)
        assert f"curl -i {ENVOY}/" in welcome
        for left in reversed(range(10)):
            async with client.get("/any/path") as answer:
                assert answer.status == 200
                assert answer.headers["X-RateLimit-Remaining"] == str(left)
                assert (await answer.json())["path"] == "/any/path"
        async with client.get("/any/path") as answer:
            assert answer.status == 429
            assert answer.content_type == "application/problem+json"
            assert 1 <= int(answer.headers["Retry-After"]) <= 60


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_and_all_it_started(number: signal.Signals) -> None:
    async with demo() as process:
        await welcomed(process)
        started = children(process).values()
        assert len(started) == 2
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert not any(map(alive, started))


@linux
async def test_nothing_outlives_a_demo_that_is_killed() -> None:
    async with demo() as process:
        await welcomed(process)
        started = children(process).values()
        process.kill()
        await until(lambda: not any(map(alive, started)), "the end of Envoy and the store")


@linux
async def test_if_envoy_dies_it_says_so_and_ends() -> None:
    async with demo() as process:
        await welcomed(process)
        os.kill(children(process)["envoy"], signal.SIGKILL)
        error = (await asyncio.wait_for(process.communicate(), 20))[1]
        assert process.returncode == 5
        assert error.decode().splitlines()[-1] == "sidecar demo: Envoy ended by itself, so the demo ends"


async def test_a_taken_port_is_named_with_who_wants_it() -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # then it is taken by another program, which is as well
            stack.enter_context(socket.create_server((sample_service.HOST, sample_service.PORT)))
        async with demo() as process:
            error = (await process.communicate())[1].decode()
    assert process.returncode == 3
    assert re.search(r"port \d+ is taken, and .+ needs it", error)


async def test_a_given_admin_key_is_used_and_not_shown() -> None:
    async with demo(SIDECAR_ADMIN_KEY="given-by-the-user") as process:
        welcome = await welcomed(process)
    assert "given-by-the-user" not in welcome
    assert "SIDECAR_ADMIN_KEY" in welcome


async def test_what_stands_in_dot_env_reaches_the_sidecar_as_it_stands(tmp_path: Path) -> None:
    """`make run` gives it the file; `$` and `#` in a key are no shell's and no make's affair."""
    key = "k$$e${y}#1 $(x)"
    file = tmp_path / ".env"
    file.write_text(f"# the key of the admin port\nSIDECAR_ADMIN_KEY='{key}'\nAPP_ENV=from-the-file\n")
    async with demo("--env-file", file, APP_ENV="from-the-environment") as process:
        welcome = await welcomed(process)
        address = re.search(r"(http://\S+)  the admin port", welcome)
        assert address
        async with aiohttp.ClientSession() as client:
            for given, status in ((key, 404), ("another", 403)):
                async with client.get(
                    f"{address[1]}v1/clients/nobody/state", headers={"X-Admin-Key": given}
                ) as answer:
                    assert answer.status == status
    assert "that of SIDECAR_ADMIN_KEY" in welcome
    assert '"app_env": "from-the-environment"' in welcome


async def test_a_wrong_line_in_dot_env_is_exit_code_1_and_named(tmp_path: Path) -> None:
    """Like one in a configuration."""
    file = tmp_path / ".env"
    file.write_text("APP_ENV=x\nno line\n")
    async with demo("--env-file", file) as process:
        error = (await process.communicate())[1].decode()
    assert (process.returncode, error) == (1, f"{file}:2: expected NAME=VALUE\n")
