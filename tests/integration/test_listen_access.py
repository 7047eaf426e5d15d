"""Who may ask a real sidecar: peers, secrets, a Unix socket, what is served; changed while it serves."""

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.edited_files import SECONDS, TAKEN_OVER, EditedSidecar
from tests.parts import StoreServer, until
from tests.raw_http import PATIENCE_SECONDS, Connection, Headers, Reply
from tests.replicas import done
from tests.sidecar_process import VIEWER, SidecarProcess

FIRST, SECOND = "first-secret-of-the-proxy", "second-secret-of-the-proxy"
RULE = {"id": "all", "route": "/*", "identifier_type": "none", "limit": 100_000, "window_seconds": 86_400}
BY_SECRET = {
    **RULE,
    "id": "by-secret",
    "route": "/s",
    "identifier_type": "header:x-sidecar-secret",
    "limit": 1,
}
CONFIG: dict[str, Any] = {
    "default_client": "c",
    "clients": [{"id": "c", "rules": [RULE, BY_SECRET]}],
    "identity": {"on_missing": "shared"},
}


@pytest.fixture(scope="module")
def sidecar(store: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditedSidecar]:
    """Each test says the whole of `listen` itself."""
    config = {**CONFIG, "store": {"url": store.url}}
    with EditedSidecar(tmp_path_factory.mktemp("access") / "config", config) as running:
        yield running


async def reread(sidecar: EditedSidecar, **listen: Any) -> None:
    """As an operator does it: the file is written, and SIGHUP sent."""
    ports = {name: sidecar.settings("listen")[name] for name in ("authz", "admin")}
    before = len(sidecar.logged(TAKEN_OVER))
    sidecar.file.write_text(sidecar.text(listen={**ports, **listen}))
    os.kill(sidecar.pid, signal.SIGHUP)
    await until(lambda: len(sidecar.logged(TAKEN_OVER)) > before, "it was read again", seconds=SECONDS)


def status(sidecar: SidecarProcess, target: str = "/authz/x", secret: str | None = None) -> int:
    return sidecar.ask("GET", target, {} if secret is None else {"X-Sidecar-Secret": secret}).status


def page(sidecar: SidecarProcess) -> str:
    return sidecar.admin("GET", "/metrics", key=None).body.decode()


def restart_warnings(sidecar: SidecarProcess) -> list[str]:
    shown: dict[str, Any] = done(sidecar.admin("GET", "/v1/config")).json
    return [warning for warning in shown["warnings"] if "restart" in warning]


async def test_peers_are_changed_without_a_restart(sidecar: EditedSidecar) -> None:
    """Strangers get a 403 that counts nothing; probes pass; the metric and the log say from where."""
    await reread(sidecar, trusted_peers=["192.0.2.0/24"])
    reply = sidecar.ask("GET", "/authz/x")
    assert (reply.status, reply.headers["content-type"]) == (403, "application/problem+json")
    for target in ("/nginx", "/forward-auth", "/clients/c/authz/x", "/rate/status?endpoint=e", "/nowhere"):
        assert status(sidecar, target) == 403
    assert (status(sidecar, "/health"), status(sidecar, "/ready")) == (200, 200)
    assert 'rate_limit_refused_peers_total{reason="peer"}' in page(sidecar)
    [warned, *_] = sidecar.logged("no access to the data port")
    assert (warned["reason"], warned["peer"]) == ("peer", "127.0.0.1")
    assert restart_warnings(sidecar) == []
    await reread(sidecar, trusted_peers=["loopback"])
    assert status(sidecar) == 200


async def test_a_secret_is_replaced_without_a_refused_request(sidecar: EditedSidecar) -> None:
    """None, one, two while proxies change over, the other one alone, none."""
    steps: list[tuple[Any, set[str | None]]] = [
        (FIRST, {FIRST}),
        ([FIRST, SECOND], {FIRST, SECOND}),
        (SECOND, {SECOND}),
        (None, {None, FIRST, SECOND}),
    ]
    for secret, good in steps:
        await reread(sidecar, secret=secret)
        for given in (None, FIRST, SECOND):
            assert status(sidecar, secret=given) == (200 if given in good else 403), (secret, given)
        assert status(sidecar, "/ready") == 200
    assert restart_warnings(sidecar) == []


async def test_the_secret_is_seen_nowhere(sidecar: EditedSidecar) -> None:
    """Neither of those that are configured, nor of one that was refused; no rule counts by it."""
    await reread(sidecar, secret=[FIRST, SECOND])
    assert [status(sidecar, "/authz/s", FIRST), status(sidecar, "/authz/s", SECOND)] == [200, 429]
    assert status(sidecar, secret=f"{FIRST}x") == 403
    counted = done(sidecar.admin("GET", "/v1/clients/c/policies/by-secret/identifiers")).json
    assert [each["identifier"] for each in counted["identifiers"]] == ["~shared"]
    asked = {"route": "/s", "headers": {"X-Sidecar-Secret": FIRST}}
    explained = done(sidecar.admin("POST", "/v1/explain", asked, key=VIEWER)).body.decode()
    shown = done(sidecar.admin("GET", "/v1/config", key=VIEWER))
    assert shown.json["settings"]["listen"]["secret"] == "***"
    # A wrong file: one secret is too short, another stands under a wrong key.
    ports = {name: sidecar.settings("listen")[name] for name in ("authz", "admin")}
    good = sidecar.file.read_text()
    wrong = {**ports, "secret": [FIRST, "first-secret"], "secrte": SECOND}
    sidecar.file.write_text(sidecar.text(listen=wrong))
    refused = sidecar.admin("POST", "/v1/reload")
    sidecar.file.write_text(good)
    assert refused.status == 422
    assert status(sidecar, secret=FIRST) == 200
    seen = [explained, shown.body.decode(), refused.body.decode(), page(sidecar), sidecar.log]
    assert not any("first-secret" in text or "second-secret" in text for text in seen)


async def test_what_is_served_is_changed_without_a_restart(sidecar: EditedSidecar) -> None:
    """What is left out is a 404, as if it were not there."""
    await reread(sidecar, apis=["rate"])
    assert [status(sidecar), status(sidecar, "/nginx"), status(sidecar, "/v1/evaluate")] == [404] * 3
    assert sidecar.ask("GET", "/rate/status?endpoint=e", {"X-User-Id": "1"}).status == 200
    await reread(sidecar, apis=["proxy", "evaluate"])
    assert [status(sidecar), status(sidecar, "/nginx"), status(sidecar, "/v1/evaluate")] == [200, 200, 405]
    assert sidecar.ask("GET", "/rate/status?endpoint=e", {"X-User-Id": "1"}).status == 404
    assert restart_warnings(sidecar) == []


async def test_dialects_have_addresses_of_their_own(sidecar: EditedSidecar) -> None:
    """Each where its proxy writes it; shown with the rest of the configuration."""
    await reread(sidecar)
    dialects = {"nginx": {"header": None, "trusted_networks": ["10.0.0.0/8"]}}
    rules = [{**RULE, "identifier_type": "ip"}]
    sidecar.file.write_text(
        sidecar.text(client_ip={"dialects": dialects}, clients=[{"id": "c", "rules": rules}])
    )
    shown = done(sidecar.admin("POST", "/v1/reload")).json
    expected = {"header": None, "trusted_hops": 1, "trusted_networks": ["10.0.0.0/8"]}
    assert shown["settings"]["client_ip"]["dialects"] == {"nginx": expected}
    sent = {"X-Client-IP": "192.0.2.1", "X-Forwarded-For": "9.9.9.9, 192.0.2.2, 10.0.0.1"}
    asked = {"X-Original-Method": "GET", "X-Original-URI": "/x"}
    assert sidecar.ask("GET", "/nginx", sent | asked).status == 200
    assert sidecar.ask("GET", "/authz/x", sent).status == 200
    counted = done(sidecar.admin("GET", "/v1/clients/c/policies/all/identifiers")).json
    assert {each["identifier"] for each in counted["identifiers"]} == {"192.0.2.1", "192.0.2.2"}


class _OnSocket(Connection):
    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._received = b""
        self._socket.settimeout(PATIENCE_SECONDS)
        try:
            self._socket.connect(path)
        except OSError:
            self.close()
            raise


class SocketSidecar(SidecarProcess):
    """Its data port is a Unix socket."""

    def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        with _OnSocket(self._config["listen"]["authz"].removeprefix("unix:")) as connection:
            return connection.ask(method, target, headers, body)


def test_a_unix_socket_serves_whoever_reaches_it(store: StoreServer, tmp_path: Path) -> None:
    """No peer is asked for there; a secret is, where one is configured."""
    with tempfile.TemporaryDirectory() as folder:
        listen = {"authz": f"unix:{folder}/s", "trusted_peers": ["192.0.2.0/24"], "secret": FIRST}
        with SocketSidecar(tmp_path, {**CONFIG, "store": {"url": store.url}, "listen": listen}) as sidecar:
            assert (status(sidecar), status(sidecar, secret=FIRST)) == (403, 200)
            assert status(sidecar, "/clients/c/nginx", FIRST) == 200
            assert sidecar.logged("no access to the data port")[0]["peer"] == ""
