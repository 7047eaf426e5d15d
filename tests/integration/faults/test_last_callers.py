"""Callers that connect in the last moment before a port is closed: whoever the kernel let in is answered."""

import asyncio
import socket
from contextlib import ExitStack

import pytest
from aiohttp import web

from sidecar.infrastructure.config.listen import Endpoint
from sidecar.listening import Port, listening
from tests.parts import free_port
from tests.raw_http import request

CALLERS = 20


async def answer(_: web.BaseRequest) -> web.Response:
    return web.Response()


@pytest.mark.parametrize("turns", range(6))
async def test_whoever_has_connected_is_answered(turns: int) -> None:
    """However far the server has got with them: not accepted, accepted, not yet heard of."""
    address = ("127.0.0.1", free_port())
    runner = web.ServerRunner(web.Server(answer))
    with ExitStack() as stack:
        async with listening(runner, Port(name="test", endpoint=Endpoint(*address))):
            callers = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(CALLERS)]
            for caller in callers:
                caller.sendall(request("GET", "/"))
            for _ in range(turns):
                await asyncio.sleep(0)
        assert {caller.recv(12) for caller in callers} == {b"HTTP/1.1 200"}


async def test_whoever_asks_a_moment_later_is_answered_too() -> None:
    """What a proxy opens a connection for may come after it."""
    address = ("127.0.0.1", free_port())
    runner = web.ServerRunner(web.Server(answer))
    with ExitStack() as stack:
        async with listening(runner, Port(name="test", endpoint=Endpoint(*address))):
            callers = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(CALLERS)]
            for caller in callers:
                asyncio.get_running_loop().call_later(0.01, caller.sendall, request("GET", "/"))
        assert {caller.recv(12) for caller in callers} == {b"HTTP/1.1 200"}


async def test_afterwards_nobody_is_let_in() -> None:
    address = ("127.0.0.1", free_port())
    async with listening(web.ServerRunner(web.Server(answer)), Port(name="t", endpoint=Endpoint(*address))):
        pass
    with socket.socket() as caller:
        assert caller.connect_ex(address) != 0
