"""Key sets: fetched from a real server or read from a file, kept, refreshed, and not at a stranger's will."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sidecar.infrastructure.admin.access import Caller, Failure, TokenRules
from sidecar.infrastructure.admin.key_sets import MAX_BYTES, FetchedKeys, FileKeys, KeySet
from sidecar.infrastructure.admin.tokens import Tokens
from tests import tokens as make

ALGORITHMS = ("RS256", "ES256")
IN = Caller("jwt:ada", True)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Issuer:
    """Publishes `body` with `status`; counts how often it was asked for what."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    #: Until it is set no answer comes; `reached` says that one is waited for.
    gate: asyncio.Event | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.gate:
            self.reached.set()
            await self.gate.wait()
        return web.Response(body=self.body, status=self.status, headers=self.headers)


@pytest.fixture
async def issuer() -> Issuer:
    return Issuer(make.key_set(make.jwk("one")))


@pytest.fixture
async def server(issuer: Issuer) -> AsyncIterator[TestServer]:
    application = web.Application()
    application.router.add_get("/{path:.*}", issuer.answer)
    running = TestServer(application)
    async with running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(server: TestServer, clock: Clock) -> Tokens:
    return Tokens(TokenRules(jwks_url=str(server.make_url("/keys"))), clock=clock)


async def test_keys_are_fetched_once_and_kept(tokens: Tokens, issuer: Issuer, clock: Clock) -> None:
    """For five minutes; then once more."""
    for _ in range(3):
        assert await tokens.caller(make.signed("one")) == IN
        clock.now += 99
    assert issuer.asked == ["/keys"]
    clock.now += 3
    assert await tokens.caller(make.signed("one")) == IN
    assert issuer.asked == ["/keys"] * 2


async def test_a_rotated_key_is_taken_over_at_once(tokens: Tokens, issuer: Issuer, clock: Clock) -> None:
    """A name that is not known is asked for; with the next set the old key is gone."""
    assert await tokens.caller(make.signed("one")) == IN
    issuer.body = make.key_set(make.jwk("one"), make.jwk("two"))
    clock.now += 10
    assert await tokens.caller(make.signed("two")) == IN
    assert await tokens.caller(make.signed("one")) == IN
    issuer.body = make.key_set(make.jwk("two"))
    clock.now += 300
    assert await tokens.caller(make.signed("one")) is Failure.UNKNOWN_KEY
    assert await tokens.caller(make.signed("two")) == IN


async def test_forged_names_do_not_hammer_the_issuer(tokens: Tokens, issuer: Issuer, clock: Clock) -> None:
    """A thousand of them in 100 seconds: it is asked eleven times; and who is known gets in all the while."""
    for number in range(1000):
        forged = make.forged({"alg": "RS256", "kid": f"forged-{number}"}, {}, b"x")
        assert await tokens.caller(forged) is Failure.UNKNOWN_KEY
        clock.now += 0.1
    assert len(issuer.asked) <= 11
    assert await tokens.caller(make.signed("one")) == IN


async def test_many_at_once_are_one_fetch(tokens: Tokens, issuer: Issuer) -> None:
    issuer.gate = asyncio.Event()
    asking = [asyncio.create_task(tokens.caller(make.signed("one"))) for _ in range(20)]
    await issuer.reached.wait()
    issuer.gate.set()
    assert await asyncio.gather(*asking) == [IN] * 20
    assert issuer.asked == ["/keys"]


async def test_nobody_known_waits_for_an_issuer_that_hangs(
    tokens: Tokens, issuer: Issuer, clock: Clock
) -> None:
    """One request refreshes the old set; the others go on with it."""
    assert await tokens.caller(make.signed("one")) == IN
    clock.now += 300
    issuer.gate = asyncio.Event()
    refreshing = asyncio.create_task(tokens.caller(make.signed("one")))
    await issuer.reached.wait()
    assert await tokens.caller(make.signed("one")) == IN
    assert not refreshing.done()
    issuer.gate.set()
    assert await refreshing == IN


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, make.key_set(make.jwk("two")), {}),
        (404, b"", {}),
        (302, b"", {"Location": "/elsewhere"}),
        (200, b"", {}),
        (200, b"<html>", {}),
        (200, b"[]", {}),
        (200, b"{}", {}),
        (200, b'{"keys": {}}', {}),
        (200, b"[" * 100_000, {}),
        (200, b"\xff\xfe\xff", {}),
        (200, make.key_set(make.jwk("two"), {"padding": "x" * MAX_BYTES}), {}),
        (200, b"\x1f\x8b broken", {"Content-Encoding": "gzip"}),
    ],
)
async def test_what_is_no_key_set_leaves_the_last_good_one(
    tokens: Tokens,
    issuer: Issuer,
    clock: Clock,
    status: int,
    body: bytes,
    headers: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No redirect is followed, and the log says once what is wrong."""
    assert await tokens.caller(make.signed("one")) == IN
    issuer.status, issuer.body, issuer.headers = status, body, headers
    clock.now += 300
    for _ in range(5):
        assert await tokens.caller(make.signed("one")) == IN
        assert await tokens.caller(make.signed("two")) is Failure.UNKNOWN_KEY
    assert issuer.asked == ["/keys"] * 2
    assert len(caplog.records) == 1


async def test_an_issuer_that_is_down_leaves_the_last_good_keys(
    tokens: Tokens, server: TestServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """For as long as it takes; it is asked again every ten seconds at most."""
    assert await tokens.caller(make.signed("one")) == IN
    await server.close()
    for _ in range(100):
        clock.now += 60
        assert await tokens.caller(make.signed("one")) == IN
    assert caplog.records
    assert str(server.port) not in "".join(str(record.__dict__.get("error")) for record in caplog.records)


async def test_without_any_key_fetched_nobody_gets_in_until_there_is(
    tokens: Tokens, issuer: Issuer, clock: Clock
) -> None:
    """A start while the issuer is away mends itself."""
    issuer.status = 503
    assert await tokens.caller(make.signed("one")) is Failure.UNKNOWN_KEY
    issuer.status = 200
    assert await tokens.caller(make.signed("one")) is Failure.UNKNOWN_KEY
    clock.now += 10
    assert await tokens.caller(make.signed("one")) == IN


async def test_a_fetch_that_takes_too_long_is_a_failed_one(clock: Clock) -> None:
    async def fetch() -> bytes:
        raise TimeoutError

    keys = FetchedKeys(fetch, ALGORITHMS, clock)
    assert await keys.find("one", "RS256") is None


def test_a_set_holds_the_public_keys_that_verify() -> None:
    """Others in it do no harm; a private part is left out; without a name, a single one is meant."""
    private = make.jwk("one", d="AQAB", p="AQAB", q="AQAB")
    others: list[Any] = [
        None,
        "text",
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "n": 1, "e": "AQAB"},
        {"kty": ["RSA"]},
        {"kty": "EC", "crv": "P-256", "x": "", "y": ""},
        {"kty": "odd", "kid": "odd"},
        make.jwk("enc", use="enc"),
    ]
    keys = KeySet(make.key_set(private, *others), ALGORITHMS)
    found = keys.find("one", "RS256")
    assert found is not None
    assert found is keys.find(None, "RS256")
    assert not hasattr(found.key, "private_numbers")
    assert keys.find("one", "ES256") is None
    assert keys.find("enc", "RS256") is None
    two = KeySet(make.key_set(make.jwk("one"), make.jwk("two")), ALGORITHMS)
    assert two.find(None, "RS256") is None


def file_tokens(path: Path, clock: Clock) -> Tokens:
    return Tokens(TokenRules(jwks_file=str(path)), clock=clock)


async def test_a_changed_file_is_read_again_within_a_second(tmp_path: Path, clock: Clock) -> None:
    """Also when it is replaced by another one, as Kubernetes does."""
    path = tmp_path / "keys.json"
    path.write_bytes(make.key_set(make.jwk("one")))
    tokens = file_tokens(path, clock)
    assert await tokens.caller(make.signed("one")) == IN
    (tmp_path / "new").write_bytes(make.key_set(make.jwk("two")))
    os.replace(tmp_path / "new", path)
    assert await tokens.caller(make.signed("two")) is Failure.UNKNOWN_KEY
    clock.now += 1
    assert await tokens.caller(make.signed("two")) == IN
    assert await tokens.caller(make.signed("one")) is Failure.UNKNOWN_KEY


async def test_a_file_that_has_not_changed_is_not_read_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(make.key_set(make.jwk("one")))
    keys = FileKeys(str(path), ALGORITHMS, clock)
    found = await keys.find("one", "RS256")
    assert found is not None
    for _ in range(10):
        clock.now += 1
        assert await keys.find("one", "RS256") is found


async def test_a_broken_or_missing_file_leaves_the_last_good_keys(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log for each, however often it is looked at."""
    path = tmp_path / "keys.json"
    path.write_bytes(make.key_set(make.jwk("one")))
    tokens = file_tokens(path, clock)
    assert await tokens.caller(make.signed("one")) == IN
    path.write_text(json.dumps({"keys": []})[:-3])
    for _ in range(5):
        clock.now += 1
        assert await tokens.caller(make.signed("one")) == IN
    assert len(caplog.records) == 1
    path.unlink()
    for _ in range(5):
        clock.now += 1
        assert await tokens.caller(make.signed("one")) == IN
    assert len(caplog.records) == 2


async def test_a_file_that_is_not_there_yet_is_found_when_it_comes(tmp_path: Path, clock: Clock) -> None:
    tokens = file_tokens(tmp_path / "keys.json", clock)
    assert await tokens.caller(make.signed("one")) is Failure.UNKNOWN_KEY
    (tmp_path / "keys.json").write_bytes(make.key_set(make.jwk("one")))
    clock.now += 1
    assert await tokens.caller(make.signed("one")) == IN


async def test_a_file_that_is_a_pipe_is_not_opened(tmp_path: Path, clock: Clock) -> None:
    """Opening it would stop everything."""
    os.mkfifo(tmp_path / "keys.json")
    assert await file_tokens(tmp_path / "keys.json", clock).caller(make.signed("one")) is Failure.UNKNOWN_KEY
