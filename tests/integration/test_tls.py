"""TLS on both ports, and certificates asked of those that connect: `listen.authz_tls`, `listen.admin_tls`."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.infrastructure.config.loading import load
from sidecar.infrastructure.config.problems import ConfigurationError
from tests.certificates import Authority
from tests.parts import free_port
from tests.proxies.nginx import run
from tests.proxies.process import Proxy, running
from tests.raw_http import Connection, Headers, Reply, ask
from tests.replicas import done
from tests.sidecar_process import ADMIN, SidecarProcess

HOST = "127.0.0.1"
RULES = [{"id": "r", "route": "/*", "identifier_type": "none", "limit": 1000, "window_seconds": 60}]
CONFIG: dict[str, Any] = {"default_client": "c", "clients": [{"id": "c", "rules": RULES}]}


class TlsSidecar(SidecarProcess):
    """Asked with the certificate of a proxy that it knows."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        authority.certify("server", HOST, "sidecar.test")
        authority.certify("proxy")
        # Relative, as a person would write them.
        own = {"certificate": "tls/server.pem", "key": "tls/server.key"}
        listen = {"authz_tls": {**own, "client_ca": "tls/ca.pem"}, "admin_tls": own}
        super().__init__(folder, {**CONFIG, "listen": listen})
        self._authority = authority

    def caller(self, name: str | None = "proxy", **options: Any) -> ssl.SSLContext:
        return caller(self._authority, name, **options)

    def ask(self, method: str, target: str, headers: Headers = (), body: bytes | None = None) -> Reply:
        with Connection(self.port, tls=self.caller()) as connection:
            return connection.ask(method, target, headers, body)

    def admin_over_tls(self, target: str) -> Reply:
        with Connection(self.admin_port, tls=self.caller(None)) as connection:
            return connection.ask("GET", target, {"X-Admin-Key": ADMIN})


def caller(
    authority: Authority, name: str | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> ssl.SSLContext:
    """Knows the authority, and has a certificate of this name in its folder."""
    context = ssl.create_default_context(cafile=authority.file)
    if newest < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = newest
    context.maximum_version = newest
    if name is not None:
        folder = authority.file.parent
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    (made / "tls").mkdir()
    return made


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "tls")


@pytest.fixture(scope="module")
def sidecar(folder: Path, authority: Authority) -> Iterator[TlsSidecar]:
    with TlsSidecar(folder, authority) as running:
        yield running


def test_a_known_caller_is_answered_over_tls(sidecar: TlsSidecar) -> None:
    """On one connection as often as it likes; both ports, of which one asks for no certificate."""
    with Connection(sidecar.port, tls=sidecar.caller()) as connection:
        assert [connection.ask("GET", "/authz/x").status for _ in range(20)] == [200] * 20
    assert done(sidecar.admin_over_tls("/v1/clients")).json["clients"][0]["id"] == "c"


def refused(sidecar: TlsSidecar, context: ssl.SSLContext) -> bool:
    """Whether nobody answers; by TLS 1.3 a client hears only afterwards that its certificate was refused."""
    try:
        with Connection(sidecar.port, tls=context) as connection:
            connection.ask("GET", "/health")
    except (OSError, AssertionError) as error:
        return isinstance(error, ssl.SSLError | ConnectionError) or "was closed" in str(error)
    return False


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_whoever_has_no_certificate_of_the_authority_is_not_answered(
    sidecar: TlsSidecar, authority: Authority, tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    """None, one that has expired, one of another authority; and the log of it does not grow."""
    authority.certify("expired", lasts=timedelta(minutes=-1))
    Authority(tmp_path).certify("stranger")
    stranger = sidecar.caller(None, newest=newest)
    stranger.load_cert_chain(tmp_path / "stranger.pem", tmp_path / "stranger.key")
    before = len(sidecar.log.splitlines())
    for _ in range(20):
        assert refused(sidecar, sidecar.caller(None, newest=newest))
        assert refused(sidecar, sidecar.caller("expired", newest=newest))
        assert refused(sidecar, stranger)
    assert not refused(sidecar, sidecar.caller(newest=newest))
    assert len(sidecar.log.splitlines()) - before <= 1


def test_plain_http_gets_no_answer_and_makes_no_noise(sidecar: TlsSidecar) -> None:
    before = sidecar.log
    for _ in range(20):
        with Connection(sidecar.port) as connection:
            connection.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.closed()
    assert sidecar.log == before


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_tls_1_1_is_refused(sidecar: TlsSidecar) -> None:
    context = sidecar.caller(newest=ssl.TLSVersion.TLSv1_1)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Connection(sidecar.port, tls=context)


NGINX = """
events {{}}
error_log stderr;
pid nginx.pid;
http {{
  access_log off;
  server {{
    listen 127.0.0.1:{port};
    location / {{ auth_request /limit; return 204; }}
    location /asked {{ auth_request /limit; alias {folder}/; }}
    location = /limit {{
      internal;
      proxy_pass https://127.0.0.1:{sidecar}/nginx;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Original-URI $request_uri;
      proxy_set_header X-Client-IP $remote_addr;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_ssl_certificate {folder}/{name}.pem;
      proxy_ssl_certificate_key {folder}/{name}.key;
      proxy_ssl_trusted_certificate {folder}/ca.pem;
      proxy_ssl_verify on;
      proxy_ssl_name sidecar.test;
    }}
  }}
}}
"""


@pytest.mark.parametrize(("name", "status"), [("proxy", 200), ("expired-proxy", 500)])
def test_a_real_proxy_asks_with_its_certificate(
    sidecar: TlsSidecar, authority: Authority, tmp_path: Path, name: str, status: int
) -> None:
    """NGINX, which checks the sidecar's in turn; with one that has expired it gets no decision."""
    authority.certify("expired-proxy", lasts=timedelta(minutes=-1))
    folder, port = authority.file.parent, free_port()
    file = tmp_path / "nginx.conf"
    file.write_text(NGINX.format(port=port, sidecar=sidecar.port, folder=folder, name=name))

    def listens() -> bool:
        try:
            Connection(port).close()
        except OSError:
            return False
        return True

    program = "/usr/sbin/nginx"
    proxy = Proxy(name="nginx", program=program, command=lambda p, d, _: run(p, d, file), ready=listens)
    with running(proxy, tmp_path):
        assert [ask(port, "GET", "/asked/ca.pem").status for _ in range(5)] == [status] * 5


async def test_open_connections_do_not_hold_up_the_end(tmp_path: Path) -> None:
    """A proxy's idle ones are ended as TLS wants it; `stop` fails if it takes long."""
    (tmp_path / "tls").mkdir()
    sidecar = TlsSidecar(tmp_path, Authority(tmp_path / "tls"))
    sidecar.start()
    connection = Connection(sidecar.port, tls=sidecar.caller())

    def is_ended() -> bool:
        ended = connection.closed()
        connection.close()
        return ended

    done(connection.ask("GET", "/authz/x"))
    waiting = asyncio.create_task(asyncio.to_thread(is_ended))
    await asyncio.to_thread(sidecar.stop)
    assert await waiting


def complaints(folder: Path, **listen: Any) -> list[str]:
    """Field and problem."""
    file = folder / "sidecar.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, "listen": listen}, sort_keys=False))
    with pytest.raises(ConfigurationError) as caught:
        load(file, {})
    assert all(problem.line for problem in caught.value.problems)
    return [f"{problem.where}: {problem.message}" for problem in caught.value.problems]


def test_what_is_wrong_with_certificates_is_said_by_field_and_file(tmp_path: Path) -> None:
    """Never what is in them; a path is relative to the folder of the configuration, not to ours."""
    made = Authority(tmp_path)
    made.certify("one", HOST)
    made.certify("two", HOST)
    (tmp_path / "words.pem").write_text("SECRET words")
    where = "listen.authz_tls"

    def said(**files: str) -> list[str]:
        return complaints(tmp_path, authz_tls=files)

    assert said(certificate="none.pem", key="none.key") == [
        f"{where}.certificate: {tmp_path}/none.pem cannot be read: no such file or directory",
        f"{where}.key: {tmp_path}/none.key cannot be read: no such file or directory",
    ]
    unfit = "holds no key without a passphrase that belongs to the certificate"
    assert said(certificate="one.pem", key="two.key") == [f"{where}.key: {tmp_path}/two.key {unfit}"]
    assert said(certificate="one.pem", key="words.pem") == [f"{where}.key: {tmp_path}/words.pem {unfit}"]
    assert said(certificate="words.pem", key="one.key") == [
        f"{where}.certificate: {tmp_path}/words.pem holds no certificate that can be used"
    ]
    assert said(certificate="one.pem", key="one.key", client_ca="words.pem") == [
        f"{where}.client_ca: {tmp_path}/words.pem holds no certificate of an authority"
    ]
    assert said(certificate="one.pem") == [f"{where}.key: is required"]


def test_a_unix_socket_takes_no_tls(tmp_path: Path) -> None:
    """Its file says who may open it."""
    Authority(tmp_path).certify("one", HOST)
    tls = {"certificate": "one.pem", "key": "one.key"}
    said = complaints(tmp_path, authz=f"unix:{tmp_path}/s", authz_tls=tls)
    assert said == [f"listen.authz_tls: belongs to host:port, not to unix:{tmp_path}/s"]


def test_a_key_that_nobody_may_read_is_said(tmp_path: Path) -> None:
    """As the one who runs the sidecar sees it; root may read everything."""
    if os.geteuid() == 0:
        (tmp_path / "one.key").mkdir()
        expected = "is a directory"
    else:
        (tmp_path / "one.key").touch(mode=0)
        expected = "permission denied"
    made = Authority(tmp_path)
    (tmp_path / "one.pem").write_bytes(made.file.read_bytes())
    said = complaints(tmp_path, admin_tls={"certificate": "one.pem", "key": "one.key"})
    assert said == [f"listen.admin_tls.key: {tmp_path}/one.key cannot be read: {expected}"]
