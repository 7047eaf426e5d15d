"""The front and who asks: peers, secrets, Unix sockets, what is served, proxies that do not say enough."""

import asyncio
import socket
from pathlib import Path

import pytest
from aiohttp.web import SockSite, UnixSite

from sidecar.domain.rule import Client, OnMissing
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.http.access import Access, networks
from sidecar.infrastructure.http.front import FrontOptions
from tests.decisions import rule
from tests.raw_http import request
from tests.served_front import Served

SECRET = "a-secret-of-the-proxy"
NOBODY = Access(trusted_peers=())
EVALUATE = b'{"client_id": "c", "route": "/x", "method": "GET", "identifier": {"type": "none"}}'
USER = {"X-User-Id": "1"}
SERVED = [
    ("GET", "/authz/x", None),
    ("OPTIONS", "/authz*", None),
    ("GET", "/clients/c/authz/x", None),
    ("GET", "/nginx", None),
    ("GET", "/ingress-nginx?a=b", None),
    ("HEAD", "/forward-auth", None),
    ("PROPFIND", "/clients/c/forward-auth", None),
    ("POST", "/v1/evaluate", EVALUATE),
    ("POST", "/rate/check", b'{"endpoint": "e"}'),
    ("GET", "/rate/status?endpoint=e", None),
]


@pytest.mark.parametrize(("method", "target", "body"), [*SERVED, ("GET", "/nowhere", None)])
async def test_whoever_is_not_trusted_gets_403_and_nothing_is_counted(
    front: Served, method: str, target: str, body: bytes | None
) -> None:
    """Before anything else of the request is read; the log and the metric hear of it."""
    front.front.options = FrontOptions(access=NOBODY)
    reply = await front.ask(method, target, USER, body)
    assert reply.status == 403
    assert reply.headers["content-type"] == "application/problem+json"
    assert "x-ratelimit-status" not in reply.headers
    assert "x-ratelimit-limit" not in reply.headers
    assert front.watcher.decided_requests == []
    assert front.watcher.refused == [("peer", "127.0.0.1")]


@pytest.mark.parametrize("target", ["/health", "/ready", "/health?x"])
async def test_probes_need_no_access(front: Served, target: str) -> None:
    """They come from the machine's own address, which may be any, and have no secret."""
    front.front.options = FrontOptions(access=Access(trusted_peers=(), secrets=(b"x",)))
    assert (await front.ask("GET", target)).status == 200


@pytest.mark.parametrize(("method", "target", "body"), SERVED)
async def test_with_the_secret_everything_is_served(
    front: Served, method: str, target: str, body: bytes | None
) -> None:
    """And without it, or with another one, nothing."""
    front.front.options = FrontOptions(access=Access(secrets=(SECRET.encode(),)))
    for given in ({}, {"X-Sidecar-Secret": "wrong"}, {"X_Sidecar_Secret": SECRET}):
        assert (await front.ask(method, target, USER | given, body)).status == 403
    assert front.watcher.refused == [("secret", "127.0.0.1")] * 3
    assert (await front.ask(method, target, USER | {"x-SIDECAR-secret": SECRET}, body)).status == 200


async def test_a_secret_that_is_sent_twice_is_wrong(front: Served) -> None:
    """The proxy overwrites what callers send; where two arrive, it did not."""
    front.front.options = FrontOptions(access=Access(secrets=(SECRET.encode(),)))
    twice = [("X-Sidecar-Secret", SECRET), ("X-Sidecar-Secret", SECRET)]
    assert (await front.ask("GET", "/authz/x", twice)).status == 403


@pytest.mark.parametrize("given", ["\xff\xfe", "é" * 8, " "])
async def test_a_secret_of_other_bytes_is_wrong(front: Served, given: str) -> None:
    """And no error of ours."""
    front.front.options = FrontOptions(access=Access(secrets=(SECRET.encode(),)))
    assert (await front.ask("GET", "/authz/x", {"X-Sidecar-Secret": given})).status == 403


async def test_no_rule_counts_by_the_secret(front: Served) -> None:
    """A rule that names its header meets callers without one, and no view has it."""
    front.front.options = FrontOptions(access=Access(secrets=(SECRET.encode(),)))
    by_secret = rule(identifier_type="header:X-Sidecar-Secret", on_missing=OnMissing.DENY)
    front.evaluator.rule_set = RuleSet([Client(id="c", rules=(by_secret,))], Policy(default_client="c"))
    assert (await front.ask("GET", "/authz/x", {"X-Sidecar-Secret": SECRET})).status == 403
    asked, decision = front.watcher.decided_requests[-1]
    assert decision.reason == "identifier_missing"
    assert SECRET not in repr(asked)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its name is short enough for a socket."""
    return tmp_path_factory.mktemp("s")


def ask_through(path: Path, bound: str | None) -> bytes:
    """The answer's first line; `bound` is the address of the asking end, which usually has none."""
    with socket.socket(socket.AF_UNIX) as client:
        if bound is not None:
            client.bind(bound)
        client.settimeout(30)
        client.connect(str(path))
        client.sendall(request("GET", "/clients/nobody/authz/x"))
        return client.recv(65536).partition(b"\r\n")[0]


async def test_whoever_reaches_a_unix_socket_may_ask(front: Served, folder: Path) -> None:
    """Whether its end has no name, a name of its own, or an abstract one."""
    await UnixSite(front.runner, str(folder / "s")).start()
    front.front.options = FrontOptions(access=NOBODY)
    for bound in (None, str(folder / "c"), f"\0{folder.name}-of-the-tests"):
        assert await asyncio.to_thread(ask_through, folder / "s", bound) == b"HTTP/1.1 200 OK"
    assert front.watcher.refused == []


async def test_the_secret_is_asked_for_on_a_unix_socket_too(front: Served, folder: Path) -> None:
    """Where it is configured."""
    await UnixSite(front.runner, str(folder / "s")).start()
    front.front.options = FrontOptions(access=Access(secrets=(SECRET.encode(),)))
    assert await asyncio.to_thread(ask_through, folder / "s", None) == b"HTTP/1.1 403 Forbidden"
    assert front.watcher.refused == [("secret", "")]


@pytest.mark.parametrize(
    ("here", "trusted", "status"),
    [
        ("::1", "::1/128", b"200"),
        ("::1", "127.0.0.0/8", b"403"),
        ("::ffff:127.0.0.1", "127.0.0.0/8", b"200"),
        ("::ffff:127.0.0.1", "::1/128", b"403"),
    ],
)
async def test_a_dual_stack_socket_knows_its_peers(
    front: Served, here: str, trusted: str, status: bytes
) -> None:
    """It writes IPv4 peers as IPv6 ones."""
    port = await dual_stack(front)
    front.front.options = FrontOptions(access=Access(trusted_peers=networks(trusted)))

    def asked() -> bytes:
        with socket.socket(socket.AF_INET6) as client:
            client.settimeout(30)
            client.connect((here, port))
            client.sendall(request("GET", "/authz/x"))
            return client.recv(65536).split()[1]

    assert await asyncio.to_thread(asked) == status


async def dual_stack(front: Served) -> int:
    listening = socket.socket(socket.AF_INET6)
    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listening.bind(("::", 0))
    await SockSite(front.runner, listening).start()
    port: int = listening.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("apis", "served"),
    [
        (("proxy",), {"/authz/x", "/nginx", "/ingress-nginx", "/forward-auth", "/clients/c/authz/x"}),
        (("evaluate",), {"/v1/evaluate"}),
        (("rate",), {"/rate/status?endpoint=e"}),
        (("evaluate", "rate"), {"/v1/evaluate", "/rate/status?endpoint=e"}),
    ],
)
async def test_only_what_is_configured_is_served(
    front: Served, apis: tuple[str, ...], served: set[str]
) -> None:
    """Of the rest it is a 404, for which nothing is counted; probes are always there."""
    front.front.options = FrontOptions(apis=apis)
    proxies = ["/authz/x", "/nginx", "/ingress-nginx", "/forward-auth", "/clients/c/authz/x"]
    for target in [*proxies, "/v1/evaluate", "/rate/status?endpoint=e"]:
        method, body = ("POST", EVALUATE) if target == "/v1/evaluate" else ("GET", None)
        reply = await front.ask(method, target, USER, body)
        assert (reply.status == 404) is (target not in served), target
    assert (await front.ask("GET", "/health")).status == 200


@pytest.mark.parametrize(
    ("target", "headers", "told"),
    [
        ("/nginx", {}, ["nginx"]),
        ("/nginx", {"X-Original-Method": "GET"}, ["nginx"]),
        ("/nginx", {"X-Original-URI": "/x"}, ["nginx"]),
        ("/nginx", {"X-Original-Method": "GET", "X-Original-URI": "/x"}, []),
        ("/nginx", {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/x"}, ["nginx"]),
        ("/ingress-nginx", {"X-Original-Method": "GET", "X-Original-URI": "/x"}, ["ingress-nginx"]),
        ("/ingress-nginx", {"X-Original-Method": "GET", "X-Original-URL": "http://h/x"}, []),
        ("/forward-auth?/x", {"X-Original-Method": "GET", "X-Original-URI": "/x"}, ["forward-auth"]),
        ("/forward-auth", {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/x"}, []),
        ("/authz/x", {}, []),
    ],
)
async def test_a_proxy_that_does_not_say_what_was_asked_for_is_told_of(
    front: Served, target: str, headers: dict[str, str], told: list[str]
) -> None:
    """And only rules for everything hold: the request is neither let pass uncounted nor refused."""
    rules = (rule("all", limit=100), rule("x", route="/x", method="GET", limit=1))
    front.evaluator.rule_set = RuleSet([Client(id="c", rules=rules)], Policy(default_client="c"))
    reply = await front.ask("GET", target, headers)
    assert reply.headers["x-ratelimit-limit"] == ("100" if told else "1")
    assert front.watcher.unreadable_targets == told
