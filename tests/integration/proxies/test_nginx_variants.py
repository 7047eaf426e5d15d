"""NGINX's recipe, both versions: fail-closed, under load, and with other values than the defaults."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.infrastructure.recipes import Recipe, render
from tests.envoy_process import SIDECAR_PORT
from tests.parts import free_port
from tests.proxies.lab import LIMIT, LIMITED, a_session, lab
from tests.proxies.nginx import PROXIES, run
from tests.proxies.process import PROXY_PORT, Proxy
from tests.proxies.scripted import front
from tests.raw_http import Connection
from tests.tcp_proxy import TcpProxy

#: What NGINX keeps to the sidecar, per worker.
KEEPALIVE = 32
CLIENTS = 8
both = pytest.mark.parametrize("proxy", PROXIES, ids=lambda proxy: proxy.name)


@both
def test_fail_closed_answers_503_to_whatever_is_no_decision(proxy: Proxy, tmp_path: Path) -> None:
    """It fails, is slow, or is gone: a 503 on a connection that is kept; refusals are as they are."""
    with front(proxy, tmp_path, fail_open=False) as nginx, Connection(PROXY_PORT) as connection:
        for said in (500, 502, 503, 504, 404):
            nginx.sidecar.answers(said, {}, b"oops")
            assert connection.ask("GET", "/x").json["status"] == 503
        nginx.sidecar.answering.clear()
        assert connection.ask("GET", "/x").status == 503
        nginx.sidecar.answering.set()
        nginx.sidecar.answers(403, {"X-RateLimit-Status": "429", "Retry-After": "1"})
        assert connection.ask("GET", "/x").status == 429
        nginx.sidecar.answers(200)
        assert connection.ask("GET", "/own-403").headers["x-app"] == "yes"


@both
async def test_a_thousand_checks_use_few_connections_and_refusals_no_log(
    proxy: Proxy, tmp_path: Path
) -> None:
    """Eight clients at once: 1,000 allowed, then 1,000 refused, and a real sidecar counts them all."""
    behind = {"listen": {"authz": f"127.0.0.1:{free_port()}"}}
    with lab(proxy, tmp_path, config=behind) as laboratory:
        async with TcpProxy(laboratory.sidecar.port, port=SIDECAR_PORT) as way:
            allowed = await asyncio.to_thread(load, "/x", a_session())
            for_allowed = way.accepted
            refused = await asyncio.to_thread(load, LIMITED, a_session())
            for_all = way.accepted
        log = laboratory.log.read_text()
    print(f"\n{proxy.name}: {for_allowed} connections for 1,000 checks, {for_all} with 1,000 refusals")
    print(f"{proxy.name}: {len(log.splitlines())} lines of error log for 1,000 refusals")
    assert allowed == [200] * 1000
    assert sorted(refused) == [200] * LIMIT + [429] * (1000 - LIMIT)
    assert 0 < for_all <= KEEPALIVE
    assert log == ""


@both
def test_a_pinned_client_a_secret_and_another_address_header(proxy: Proxy, tmp_path: Path) -> None:
    """What a recipe may say beside its defaults."""
    secret = "0123456789+/=~.abcdef"
    recipe = Recipe(client="c", secret=secret, address_header="x-real-ip", forgeable_headers=("x-tenant",))
    for name, text in render("nginx", recipe).items():
        (tmp_path / name).write_text(text)

    def command(program: Path, directory: Path, _: bool) -> list[str]:
        return run(program, directory, directory / "nginx.conf")

    forged = {"X-Real-IP": "9.9.9.9", "X-Tenant": "other", "X-Sidecar-Secret": "guess"}
    with front(replace(proxy, command=command), tmp_path) as nginx:
        assert nginx.ask(headers=forged).status == 200
        head = nginx.sidecar.heads[0].decode()
    assert head.startswith("GET /clients/c/nginx HTTP/1.1\r\n")
    assert f"\r\nX-Sidecar-Secret: {secret}\r\n" in head
    assert "\r\nX-Real-Ip: 127.0.0.1\r\n" in head
    assert not any(word in head for word in ("9.9.9.9", "other", "guess"))


def load(target: str, session: dict[str, str]) -> list[int]:
    """1,000 requests, each client on a connection that it keeps; all begin together."""
    together = threading.Barrier(CLIENTS)

    def client(_: int) -> list[int]:
        with Connection(PROXY_PORT) as connection:
            together.wait()
            return [connection.ask("GET", target, session).status for _ in range(1000 // CLIENTS)]

    with ThreadPoolExecutor(CLIENTS) as clients:
        return [status for statuses in clients.map(client, range(CLIENTS)) for status in statuses]
