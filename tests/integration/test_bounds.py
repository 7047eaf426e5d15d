"""What callers can hold and make grow is bounded: connections, files, patience, log lines, metric series."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.web_runner import BaseRunner

from sidecar.infrastructure import connection as connections_of
from sidecar.infrastructure.admin import fallback
from sidecar.infrastructure.admin.access import Access, AdminKey
from sidecar.infrastructure.admin.api import admin_runner
from sidecar.infrastructure.admin.table import Operation, Tag
from sidecar.infrastructure.connection import Bound
from sidecar.infrastructure.http import held, protocol, server
from tests import sidecar_process
from tests.raw_http import Connection, Reply, connections, request
from tests.served_front import Served
from tests.sidecar_process import ADMIN, SidecarProcess, command

RULE = {"id": "r", "route": "/*", "identifier_type": "ip", "limit": 5, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "client_ip": {"header": "x-client-ip"},
    "listen": {"max_connections": 16},
    "clients": [{"id": "c", "rules": [RULE]}],
}
CLOSED = "a port holds as many connections as it may"
#: How long the impatient servers of these tests wait for a caller.
SECONDS = 0.2


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


def series(sidecar: SidecarProcess) -> dict[str, float]:
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    lines = (line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def closed_for_others(sidecar: SidecarProcess, port: str) -> float:
    return series(sidecar).get(f'rate_limit_connections_closed_total{{port="{port}"}}', 0)


def test_silent_connections_do_not_shut_out_who_asks(sidecar: SidecarProcess) -> None:
    """Proxies keep the connections that they have, and a new one is served."""
    with connections(sidecar.port, 8) as kept:
        assert {one.ask("GET", "/health").status for one in kept} == {200}
        with connections(sidecar.port, 200):
            assert {one.ask("GET", "/health").status for one in kept} == {200}
            assert sidecar.ask("GET", "/health").status == 200
    assert closed_for_others(sidecar, "authz") >= 190


def test_half_a_request_is_no_reason_to_be_kept(sidecar: SidecarProcess) -> None:
    """Neither half a head nor a body that does not come."""
    halves = [request("GET", "/authz/x")[:-2], request("POST", "/v1/evaluate", {"Content-Length": "9"})]
    with Connection(sidecar.port) as kept, ExitStack() as stack:
        assert kept.ask("GET", "/health").status == 200
        for number in range(100):
            stack.enter_context(Connection(sidecar.port)).send(halves[number % 2])
        assert kept.ask("GET", "/health").status == 200
        assert sidecar.ask("GET", "/health").status == 200


def test_of_connections_that_have_asked_the_longest_silent_goes(sidecar: SidecarProcess) -> None:
    """Not the one that is in use."""
    with connections(sidecar.port, 16) as kept:
        for one in kept:
            assert one.ask("GET", "/health").status == 200
        assert kept[0].ask("GET", "/health").status == 200
        with Connection(sidecar.port) as newer:
            assert newer.ask("GET", "/health").status == 200
            assert kept[1].closed()
            assert kept[0].ask("GET", "/health").status == 200


def test_the_admin_port_is_bounded_likewise(sidecar: SidecarProcess) -> None:
    """It has a bound of its own, so that neither port's callers hold the other's files."""
    with connections(sidecar.admin_port, 400):
        assert sidecar.admin("GET", "/v1/clients").status == 200
        assert sidecar.ask("GET", "/health").status == 200
    assert closed_for_others(sidecar, "admin") > 200


def test_a_crowd_is_a_line_a_second_in_the_log(sidecar: SidecarProcess) -> None:
    """However many connections came."""
    before = len(sidecar.logged(CLOSED))
    with connections(sidecar.port, 500):
        sidecar.ask("GET", "/health")
    assert len(sidecar.logged(CLOSED)) - before < 20


def test_a_flood_leaves_files_for_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives fewer than the configuration asks for: it says so, decides, reloads, answers."""

    def limited(*arguments: str | Path) -> list[str]:
        return ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *command(*arguments)]

    monkeypatch.setattr(sidecar_process, "command", limited)
    with (
        SidecarProcess(tmp_path, CONFIG | {"listen": {"max_connections": 4096}}) as few,
        ExitStack() as stack,
    ):
        stack.enter_context(connections(few.port, 400))
        assert few.ask("GET", "/health").status == 200
        assert (
            few.ask("GET", "/authz/x", {"X-Client-IP": "192.0.2.1"}).headers["x-ratelimit-remaining"] == "4"
        )
        assert few.admin("POST", "/v1/reload").status == 200
        [said] = few.logged("the limit of open files is too low for listen.max_connections")
        assert (said["wanted"], said["held"]) == (4096, 150)


def test_log_lines_are_bounded_by_time_and_not_by_traffic(sidecar: SidecarProcess) -> None:
    """Refusals, addresses and targets that cannot be read, wrong keys, and what is no HTTP."""
    before = len(sidecar.log.splitlines())
    with Connection(sidecar.port) as caller:
        for number in range(1000):
            caller.ask("GET", "/authz/x", {"X-Client-IP": "192.0.2.2"})
            caller.ask("GET", "/authz/x", {"X-Client-IP": f"nonsense {number}"})
            caller.ask("GET", "/nginx")
    for _ in range(100):
        with Connection(sidecar.port) as caller:
            caller.send(b"\x16\x03\x01\r\n\r\n")
            assert caller.answer().status == 400
        assert sidecar.admin("GET", "/v1/clients", key="wrong-key").status in (403, 429)
    assert len(sidecar.log.splitlines()) - before < 60


def test_metric_series_are_bounded_by_the_configuration(sidecar: SidecarProcess) -> None:
    """Ever new addresses, hosts, paths, methods, headers and clients make none."""

    def asked(number: int) -> None:
        caller = {
            "X-Client-IP": f"2001:db8:{number:x}::1",
            "Host": f"h{number}.example",
            "X-Request-ID": f"{number}",
        }
        with Connection(sidecar.port) as opened:
            opened.ask(f"M{number}", f"/authz/p{number}?q={number}", caller)
            opened.ask("GET", f"/clients/c{number}/authz/x", caller)
            opened.ask("GET", f"/p{number}")
            opened.ask("GET", "/nginx", {"X-Original-URI": f"/{number}", "X-Original-Method": f"M{number}"})

    asked(0)
    before = _without_census(sidecar)
    for number in range(1, 500):
        asked(number)
    assert _without_census(sidecar) == before


def _without_census(sidecar: SidecarProcess) -> set[str]:
    """Without what is there for each rule as soon as it was looked at."""
    return series(sidecar).keys() - {'rate_limit_live_identifiers{client="c",rule="r"}'}


# Below, servers in this process that lose their patience soon.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connections_of, fallback, held, protocol, server):
        for name in ("FIRST_REQUEST_SECONDS", "BODY_SECONDS", "HEAD_SECONDS", "LOOK_SECONDS"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, SECONDS / 10 if name == "LOOK_SECONDS" else SECONDS)


async def served(runner: BaseRunner) -> AsyncIterator[int]:
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.port
    finally:
        await runner.cleanup()


@pytest.fixture
async def data_port(impatient: None) -> AsyncIterator[int]:
    async for port in served(Served().runner):
        yield port


@pytest.fixture
async def admin_port(impatient: None) -> AsyncIterator[int]:
    async def read(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    access = Access()
    access.use([AdminKey("ops", ADMIN, may_change=True)])
    operation = Operation("POST", "/v1/read", read, Tag.OPERATIONS, "Read", {})
    async for port in served(admin_runner([operation], access, Bound())):
        yield port


def dawdle(port: int, first: bytes, again: bytes = b"") -> bytes:
    """What is answered, until the end, to who sends this and then a little now and then."""
    received = b""
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.settimeout(SECONDS / 4)
        caller.sendall(first)
        for _ in range(400):
            try:
                if not (data := caller.recv(65536)):
                    return received
                received += data
            except TimeoutError:
                caller.sendall(again)
            except ConnectionError:
                return received
    pytest.fail(f"the connection was not closed: {received!r}")


@pytest.mark.parametrize(
    ("first", "again"),
    [(b"", b""), (b"GET /heal", b""), (b"GET /health HTTP/1.1\r\n", b"X-Y: z\r\n")],
    ids=["silent", "half a line", "a header now and then"],
)
async def test_who_does_not_ask_is_hung_up_on(
    data_port: int, admin_port: int, first: bytes, again: bytes
) -> None:
    """Without a word: there is nothing to answer."""
    for port in (data_port, admin_port):
        assert await asyncio.to_thread(dawdle, port, first, again) == b""


async def test_a_body_that_does_not_come_is_a_408(data_port: int) -> None:
    asked = request("POST", "/v1/evaluate", {"Content-Length": "100"}) + b"{"
    assert (await asyncio.to_thread(dawdle, data_port, asked)).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_does_not_come_is_a_408_of_the_admin_port(admin_port: int) -> None:
    asked = request("POST", "/v1/read", {"Content-Length": "100", "X-Admin-Key": ADMIN}) + b"{"

    def answered() -> Reply:
        with Connection(admin_port) as caller:
            caller.send(asked)
            return caller.answer()

    assert (await asyncio.to_thread(answered)).status == 408


async def test_who_may_not_ask_need_not_be_waited_for(admin_port: int) -> None:
    """Without a key the answer comes before the body."""
    asked = request("POST", "/v1/read", {"Content-Length": "100"})

    def answered() -> Reply:
        with Connection(admin_port) as caller:
            caller.send(asked)
            return caller.answer()

    assert (await asyncio.to_thread(answered)).status == 403


async def test_the_answer_to_a_proxy_does_not_wait_for_a_body(data_port: int) -> None:
    """Which does not come; then the connection ends, since nobody knows where the next request begins."""
    asked = request("POST", "/authz/x", {"Content-Length": "100", "X-Client-IP": "192.0.2.1"}) + b"{"
    assert (await asyncio.to_thread(dawdle, data_port, asked)).startswith(b"HTTP/1.1 200 ")


async def test_who_has_asked_may_be_silent_for_longer(data_port: int) -> None:
    """Proxies keep their connections for when they need them."""
    with Connection(data_port) as caller:
        assert (await asyncio.to_thread(caller.ask, "GET", "/health")).status == 200
        assert await asyncio.to_thread(dawdle, data_port, b"") == b""  # a new one has been given up
        assert (await asyncio.to_thread(caller.ask, "GET", "/health")).status == 200
