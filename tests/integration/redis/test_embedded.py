"""The embedded store, on real servers: it answers, comes back, keeps counters and leaves nothing running."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from sidecar.infrastructure import child_process
from sidecar.infrastructure.redis.embedded import EmbeddedServer
from tests.integration.redis.embedded_store import client, running
from tests.parts import alive, until


def socket_of(server: EmbeddedServer) -> Path:
    return Path(urlsplit(server.url).path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_started_store_answers(tmp_path: Path, binary: Path) -> None:
    async with running(tmp_path, binary) as server, client(server) as redis:
        assert await redis.ping()


async def test_it_keeps_what_is_counted_and_never_evicts(tmp_path: Path, binary: Path) -> None:
    async with running(tmp_path, binary) as server, client(server) as redis:
        settings = await redis.config_get("append*", "maxmemory-policy", "save", "port")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""
    assert settings["port"] == "0"


async def test_counters_survive_stop_and_start(tmp_path: Path, binary: Path) -> None:
    async with running(tmp_path, binary) as server, client(server) as redis:
        await redis.incrby("counter", 7)
    async with running(tmp_path, binary) as server, client(server) as redis:
        assert await redis.get("counter") == "7"


async def test_a_killed_store_is_started_again_with_its_counters(tmp_path: Path, binary: Path) -> None:
    restarts: list[None] = []
    async with running(tmp_path, binary, on_restart=lambda: restarts.append(None)) as server:
        async with client(server) as redis:
            await redis.incrby("counter", 7)
            killed = server.pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            await until(lambda: len(restarts) == 1, "the restart")
            assert server.pid not in (killed, None)
        async with client(server) as redis:
            assert await redis.get("counter") == "7"


async def test_a_store_that_keeps_dying_is_started_again_each_time(
    tmp_path: Path, valkey_binary: Path
) -> None:
    restarts: list[None] = []
    async with running(tmp_path, valkey_binary, on_restart=lambda: restarts.append(None)) as server:
        for nth in range(3):
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            await until(partial(has, restarts, nth + 1), "a restart")


def has(restarts: list[None], number: int) -> bool:
    return len(restarts) == number


async def test_stop_leaves_no_process_and_no_socket(tmp_path: Path, binary: Path) -> None:
    async with running(tmp_path, binary) as server:
        pid, directory = server.pid, socket_of(server).parent
        assert pid is not None
        assert directory.exists()
    assert not alive(pid)
    assert not directory.exists()


async def test_stop_between_death_and_restart_starts_nothing(tmp_path: Path, valkey_binary: Path) -> None:
    async with running(tmp_path, valkey_binary) as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: server.pid is None, "the death to be noticed")
    assert server.pid is None


async def test_a_store_that_does_not_end_is_killed(
    tmp_path: Path, valkey_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "STOP_SECONDS", 0.1)
    async with running(tmp_path, valkey_binary) as server:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    assert not alive(pid)


async def test_directories_and_socket_are_for_their_user_only(tmp_path: Path, binary: Path) -> None:
    async with running(tmp_path / "new", binary) as server:
        socket = socket_of(server)
        for private in (tmp_path / "new", tmp_path / "new" / "valkey", socket.parent, socket):
            assert mode(private) == 0o700


async def test_a_directory_that_was_there_keeps_its_permissions(tmp_path: Path, valkey_binary: Path) -> None:
    os.chmod(tmp_path, 0o755)
    async with running(tmp_path, valkey_binary):
        assert mode(tmp_path) == 0o755
        assert mode(tmp_path / "valkey") == 0o700


async def test_a_long_directory_is_no_trouble(tmp_path: Path, binary: Path) -> None:
    directory = tmp_path / ("long " * 40) / "x"
    async with running(directory, binary) as server, client(server) as redis:
        assert await redis.ping()


ORPHAN = """
import asyncio, sys
from pathlib import Path
from sidecar.infrastructure.redis.embedded import EmbeddedServer

async def main():
    server = EmbeddedServer(Path(sys.argv[1]), binary=Path(sys.argv[2]))
    await server.start()
    print(server.pid, server.url, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
async def test_a_store_whose_sidecar_was_killed_ends_and_the_next_one_takes_over(
    tmp_path: Path, binary: Path
) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHAN, str(tmp_path), str(binary), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid, url = (await parent.stdout.readline()).decode().split()
    async with Redis.from_url(url) as redis:
        await redis.incrby("counter", 7)
    parent.kill()
    await parent.wait()
    async with running(tmp_path, binary) as server, client(server) as redis:
        assert await redis.get("counter") == "7"
        assert not alive(int(pid))
        assert not socket_of(server).parent.with_name(urlsplit(url).path.split("/")[-2]).exists()


async def test_a_locale_that_this_machine_lacks_is_no_trouble(
    tmp_path: Path, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    async with running(tmp_path, binary) as server, client(server) as redis:
        assert await redis.ping()


async def test_a_client_finds_the_restarted_store_again(tmp_path: Path, valkey_binary: Path) -> None:
    """The address stays, so the client that was connected need not be made anew."""
    async with running(tmp_path, valkey_binary) as server, client(server) as redis:
        await redis.ping()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await until(redis.ping, "the same client's PONG", swallow=RedisError)
