"""Unix sockets: never taken from somebody who answers, never left behind."""

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from sidecar.infrastructure.config.listen import Endpoint
from sidecar.listening import CannotListen, Port, listening


@pytest.fixture
def path() -> Iterator[Path]:
    """Not in pytest's tmp_path, which may be longer than a socket's path may be."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "s"


def served(path: Path, word: str) -> AbstractAsyncContextManager[None]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=word)

    return listening(
        web.ServerRunner(web.Server(answer)), Port(name="listen.authz", endpoint=Endpoint(path=str(path)))
    )


async def answer_of(path: Path) -> str:
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession(connector=connector) as client, client.get("http://sidecar/") as answer:
        return await answer.text()


def left_behind(path: Path) -> None:
    """The file of a socket whose program was killed."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


async def test_a_socket_that_somebody_answers_on_is_not_taken(path: Path) -> None:
    """The second one ends with the reason, and the first one goes on."""
    async with served(path, "first"):
        with pytest.raises(CannotListen) as caught:
            async with served(path, "second"):
                pass
        assert str(caught.value) == f"listen.authz: cannot listen on unix:{path}: Address already in use"
        assert await answer_of(path) == "first"


async def test_a_stale_socket_is_replaced(path: Path) -> None:
    """What a killed sidecar left behind is no obstacle for the next one."""
    left_behind(path)
    async with served(path, "next"):
        assert await answer_of(path) == "next"


async def test_the_socket_is_gone_at_the_end(path: Path) -> None:
    """So nobody asks where nobody answers."""
    async with served(path, "first"):
        assert path.is_socket()
    assert not path.exists()


async def test_a_socket_that_another_program_put_there_meanwhile_stays(path: Path) -> None:
    """Only what is ours is removed."""
    async with served(path, "first"):
        kept = path.rename(path.with_name("moved"))
        left_behind(path)
    assert path.is_socket()
    assert kept.is_socket()


async def test_a_full_queue_of_callers_is_an_answer(path: Path) -> None:
    """Whoever listens there is busy, not gone."""
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(str(path))
        with pytest.raises(CannotListen, match="Address already in use"):
            async with served(path, "second"):
                pass
    assert path.is_socket()


async def test_a_file_that_is_no_socket_stays(path: Path) -> None:
    """A wrong path must not cost anybody a file."""
    path.write_text("kept")
    with pytest.raises(CannotListen, match="Address already in use"):
        async with served(path, "first"):
            pass
    assert path.read_text() == "kept"


async def test_a_path_that_is_too_long_is_a_reason(path: Path) -> None:
    """Said in words, without a stack trace."""
    with pytest.raises(CannotListen, match="too long"):
        async with served(path.with_name("s" * 200), "first"):
            pass
