"""Renewed certificates: for new connections at once, and only if they fit."""

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sidecar.infrastructure.certificates import CertificateFiles, FreshContext
from sidecar.infrastructure.config.listen import Endpoint, Tls
from sidecar.listening import CannotListen, Port, listening
from tests.certificates import Authority
from tests.parts import free_port, until

HOST = "127.0.0.1"
UNFIT = "a renewed certificate cannot be used; the last good one stays"


@pytest.fixture
def first(tmp_path: Path) -> Authority:
    (tmp_path / "first").mkdir()
    return Authority(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Authority:
    (tmp_path / "second").mkdir()
    return Authority(tmp_path / "second")


def put(folder: Path, authority: Authority) -> None:
    """A server's certificate and key of this authority, in the place of those that are there; and itself."""
    for source, name in zip(authority.certify("server", HOST), ("crt", "key"), strict=True):
        swap(source, folder / name)
    swap(authority.file, folder / "ca")


def swap(source: Path, target: Path) -> None:
    """As whoever renews certificates does it: nobody sees half of a file."""
    shutil.copy(source, made := target.with_suffix(".new"))
    made.replace(target)


@asynccontextmanager
async def served(folder: Path, *, mutual: bool = False) -> AsyncIterator[int]:
    """The port."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="answered")

    ca = str(folder / "ca") if mutual else None
    tls = Tls(certificate=str(folder / "crt"), key=str(folder / "key"), client_ca=ca)
    endpoint = Endpoint(HOST, free_port())
    port = Port(name="listen.authz", endpoint=endpoint, tls=tls, look_seconds=0.01)
    async with listening(web.ServerRunner(web.Server(answer)), port):
        yield endpoint.port


async def answers(port: int, authority: Authority, own: Authority | None = None) -> bool:
    """Whether a new connection finds a certificate of `authority`, and with one of `own` it is answered."""
    context = ssl.create_default_context(cafile=authority.file)
    if own:
        context.load_cert_chain(*own.certify("proxy"))
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return False
    try:
        return await spoken(reader, writer)
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        writer.transport.abort()


async def spoken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_renewed_certificate_holds_for_new_connections(
    tmp_path: Path, first: Authority, second: Authority
) -> None:
    """Without a restart; those that are open go on."""
    put(tmp_path, first)
    async with served(tmp_path) as port:
        context = ssl.create_default_context(cafile=first.file)
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        assert await answers(port, first)
        put(tmp_path, second)
        await until(lambda: answers(port, second), "the new one is used")
        assert not await answers(port, first)
        assert await spoken(reader, writer)
        writer.close()
        await writer.wait_closed()


async def test_renewed_authorities_hold_for_new_connections(
    tmp_path: Path, first: Authority, second: Authority
) -> None:
    """Who is certified by one that is gone is not answered any more."""
    put(tmp_path, first)
    async with served(tmp_path, mutual=True) as port:
        assert await answers(port, first, first)
        assert not await answers(port, first, second)
        put(tmp_path, second)
        await until(lambda: answers(port, second, second), "the new one is used")
        assert not await answers(port, second, first)


async def test_what_does_not_fit_is_said_once_and_the_last_pair_stays(
    tmp_path: Path, first: Authority, second: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate whose key has not come yet, for as long as that takes."""
    put(tmp_path, first)
    with caplog.at_level(logging.INFO, "sidecar"):
        async with served(tmp_path) as port:
            certificate, key = second.certify("server", HOST)
            swap(certificate, tmp_path / "crt")
            await until(lambda: UNFIT in caplog.messages, "it is said")
            for _ in range(5):  # several looks
                await asyncio.sleep(0.01)
                assert await answers(port, first)
            assert caplog.messages.count(UNFIT) == 1
            swap(key, tmp_path / "key")
            await until(lambda: answers(port, second), "the whole pair is used")
    assert caplog.messages.count("a renewed certificate is used") == 1
    record = next(record for record in caplog.records if record.getMessage() == UNFIT)
    assert str(tmp_path / "key") in vars(record)["error"]
    assert "PRIVATE" not in str(vars(record))


async def test_files_that_are_gone_for_a_moment_end_nothing(
    tmp_path: Path, first: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, first)
    with caplog.at_level(logging.INFO, "sidecar"):
        async with served(tmp_path) as port:
            (tmp_path / "crt").unlink()
            await until(lambda: UNFIT in caplog.messages, "it is said")
            assert await answers(port, first)
            put(tmp_path, first)
            await until(lambda: "a renewed certificate is used" in caplog.messages, "it is back")


async def test_files_that_have_gone_since_the_start_are_a_reason(tmp_path: Path, first: Authority) -> None:
    """As an address that is taken: in one line."""
    put(tmp_path, first)
    tls = Tls(certificate=str(tmp_path / "crt"), key=str(tmp_path / "key"))
    (tmp_path / "key").unlink()
    port = Port(name="listen.authz", endpoint=Endpoint(HOST, free_port()), tls=tls)
    with pytest.raises(CannotListen) as caught:
        async with listening(web.ServerRunner(web.Server(lambda request: None)), port):  # type: ignore[arg-type, return-value]
            pass
    expected = f"listen.authz_tls.key: {tmp_path}/key cannot be read: no such file or directory"
    assert str(caught.value) == expected


def test_nothing_older_than_tls_1_2_is_spoken(tmp_path: Path, first: Authority) -> None:
    put(tmp_path, first)
    files = CertificateFiles(tmp_path / "crt", tmp_path / "key")
    assert files.context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert files.context().verify_mode is ssl.CERT_NONE
    mutual = CertificateFiles(tmp_path / "crt", tmp_path / "key", tmp_path / "ca").context()
    assert mutual.verify_mode is ssl.CERT_REQUIRED
    assert isinstance(FreshContext.of(files), ssl.SSLContext)
