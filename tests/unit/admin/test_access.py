"""The guard on a real port: who is let through to what, and how often anybody may fail."""

import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from sidecar.infrastructure.admin import access as module
from sidecar.infrastructure.admin.access import (
    BY,
    Access,
    AdminKey,
    Caller,
    Failure,
    TokenRules,
    find_key,
    guard,
    only_reads,
)
from sidecar.infrastructure.admin.attempts import FailureLimit

Client = TestClient[web.Request, web.Application]
Headers = dict[str, str]

OPS, OLD, WATCHER = "key-of-the-operators", "key-of-the-operators-before", "key-of-the-watchers"
KEYS = [AdminKey("ops", OPS, True), AdminKey("ops-old", OLD, True), AdminKey("watcher", WATCHER, False)]
#: Tokens that `Issued` knows.
ADMIN_TOKEN, VIEWER_TOKEN = "token-of-an-admin", "token-of-a-viewer"


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Issued:
    """A `TokenCheck` that knows two tokens."""

    async def caller(self, token: str) -> Caller | Failure:
        known = {ADMIN_TOKEN: Caller("jwt:ada", True), VIEWER_TOKEN: Caller("jwt:bob", False)}
        return known.get(token, Failure.SIGNATURE)


@dataclass
class Watcher:
    failures: list[tuple[str, str]] = field(default_factory=list)

    def failed(self, reason: str, address: str) -> None:
        self.failures.append((reason, address))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def access(clock: Clock, watcher: Watcher) -> Access:
    made = Access(watcher.failed, failures=FailureLimit(clock))
    made.use(KEYS)
    made.tokens = Issued()
    return made


async def _who(request: web.Request) -> web.Response:
    return web.Response(text=request.get(BY, "nobody"))


@pytest.fixture
async def client(access: Access) -> AsyncIterator[Client]:
    application = web.Application(middlewares=[guard(access)])
    for path in ("/health", "/ready", "/metrics"):
        application.router.add_get(path, _who)
    application.router.add_get("/v1/things", _who)
    application.router.add_post("/v1/things", _who)
    application.router.add_delete("/v1/things", _who)
    application.router.add_post("/v1/explain", only_reads(_who))
    async with TestClient(TestServer(application)) as running:
        yield running


def key(value: str) -> Headers:
    return {"X-Admin-Key": value}


def bearer(value: str) -> Headers:
    return {"Authorization": f"Bearer {value}"}


READS = [("GET", "/v1/things"), ("HEAD", "/v1/things"), ("POST", "/v1/explain")]
CHANGES = [("POST", "/v1/things"), ("DELETE", "/v1/things")]
ABSENT = [("GET", "/v1/nothing"), ("GET", "/v1%2Fexplain"), ("GET", "/health/")]
NOT_ALLOWED = [("PUT", "/v1/things"), ("DELETE", "/v1/explain")]


@pytest.mark.parametrize(("method", "path"), [*READS, *CHANGES])
@pytest.mark.parametrize(
    ("headers", "by"),
    [
        (key(OPS), "ops"),
        (key(OLD), "ops-old"),
        (bearer(ADMIN_TOKEN), "jwt:ada"),
        ({"Authorization": f"bEaReR   {ADMIN_TOKEN} "}, "jwt:ada"),
        (key("wrong") | bearer(ADMIN_TOKEN), "jwt:ada"),
        (key(OPS) | bearer("wrong"), "ops"),
        (key(OPS) | bearer(VIEWER_TOKEN), "ops"),
        (key(WATCHER) | bearer(ADMIN_TOKEN), "jwt:ada"),
        (key(OPS) | {"Authorization": "Basic b3BzOm9wcw=="}, "ops"),
    ],
)
async def test_an_admin_reads_and_changes_under_his_name(
    client: Client, watcher: Watcher, method: str, path: str, headers: Headers, by: str
) -> None:
    """By either of two keys that are valid at once, by a token, or by whichever of both is valid."""
    reply = await client.request(method, path, headers=headers)
    assert (reply.status, await reply.text()) == (200, "" if method == "HEAD" else by)
    assert watcher.failures == []


VIEWERS = [
    (key(WATCHER), "watcher"),
    (bearer(VIEWER_TOKEN), "jwt:bob"),
    (key(WATCHER) | bearer("wrong"), "watcher"),
    (key("wrong") | bearer(VIEWER_TOKEN), "jwt:bob"),
]


@pytest.mark.parametrize(("headers", "by"), VIEWERS)
async def test_a_viewer_reads_and_changes_nothing(
    client: Client, watcher: Watcher, headers: Headers, by: str
) -> None:
    """Also by the POST that only reads; a refused change names who may not, and locks nobody out."""
    for method, path in READS:
        reply = await client.request(method, path, headers=headers)
        assert (reply.status, await reply.text()) == (200, "" if method == "HEAD" else by)
    for method, path in [*CHANGES, *NOT_ALLOWED] * 5:
        reply = await client.request(method, path, headers=headers)
        assert reply.status == 403
        assert by in (await reply.json(content_type=None))["detail"]
    assert {reason for reason, _ in watcher.failures} == {"read_only"}


WRONG = [
    ({}, "missing"),
    (key(""), "missing"),
    ({"Authorization": "Bearer"}, "missing"),
    ({"Authorization": "Bearer  "}, "missing"),
    ({"Authorization": f"Basic {ADMIN_TOKEN}"}, "missing"),
    ({"Authorization": ADMIN_TOKEN}, "missing"),
    (key("wrong"), "wrong_key"),
    (key(OPS[:-1]), "wrong_key"),
    (key(OPS + "x"), "wrong_key"),
    (key(OPS.upper()), "wrong_key"),
    (key(f"{OPS},{OPS}"), "wrong_key"),
    (key("caf\xe9"), "wrong_key"),
    (key("x" * 8000), "wrong_key"),
    (key("wrong") | {"Authorization": "Basic x"}, "wrong_key"),
    (bearer("wrong"), "token_signature"),
    (bearer(OPS), "token_signature"),
    (key(ADMIN_TOKEN) | bearer("wrong"), "token_signature"),
]


@pytest.mark.parametrize(("headers", "reason"), WRONG)
async def test_without_a_valid_credential_everything_is_alike(
    client: Client, watcher: Watcher, headers: Headers, reason: str
) -> None:
    """What there is, what there is not, and what the method does not fit: one answer, and no 401."""
    replies = [await client.request(*what, headers=headers) for what in (READS[0], ABSENT[0], NOT_ALLOWED[0])]
    assert {reply.status for reply in replies} == {403}
    assert len({await reply.read() for reply in replies}) == 1
    assert {reply.headers["Content-Type"] for reply in replies} == {"application/problem+json"}
    assert watcher.failures == [(reason, "127.0.0.1")] * 3


@pytest.mark.parametrize(("headers", "_by"), VIEWERS)
async def test_with_a_valid_one_it_is_said_what_exists(client: Client, headers: Headers, _by: str) -> None:
    for method, path in ABSENT:
        assert (await client.request(method, path, headers=headers)).status == 404
    for method, path in NOT_ALLOWED:
        assert (await client.request(method, path, headers=key(OPS))).status == 405


@pytest.mark.parametrize("headers", [{}, key("wrong"), key(WATCHER), bearer("wrong")])
@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
async def test_probes_and_prometheus_need_nothing(
    client: Client, watcher: Watcher, access: Access, path: str, headers: Headers
) -> None:
    """Also where nothing is configured."""
    assert (await client.get(path, headers=headers)).status == 200
    access.keys, access.tokens = (), None
    assert (await client.get(path, headers=headers)).status == 200
    assert watcher.failures == []


@pytest.mark.parametrize("headers", [{}, key(""), key(OPS), bearer(ADMIN_TOKEN), key("None")])
async def test_with_nothing_configured_nobody_gets_in(
    client: Client, access: Access, watcher: Watcher, headers: Headers
) -> None:
    """However often: there is nothing to guess, so nobody is told to wait."""
    access.keys, access.tokens = (), None
    for method, path in [*READS, *CHANGES, *ABSENT, *NOT_ALLOWED]:
        reply = await client.request(method, path, headers=headers)
        assert (reply.status, reply.headers.get("Retry-After")) == (403, None)
    assert {reason for reason, _ in watcher.failures} == {"closed"}


async def test_keys_alone_and_tokens_alone_are_enough(client: Client, access: Access) -> None:
    """A token where none is configured is a wrong credential."""
    access.tokens = None
    assert (await client.get("/v1/things", headers=key(OPS))).status == 200
    assert (await client.get("/v1/things", headers=bearer(ADMIN_TOKEN))).status == 403
    access.keys, access.tokens = (), Issued()
    assert (await client.get("/v1/things", headers=key(OPS))).status == 403
    assert (await client.get("/v1/things", headers=bearer(ADMIN_TOKEN))).status == 200


async def test_keys_are_exchanged_while_serving(client: Client, access: Access) -> None:
    """The next request is asked for the new ones."""
    access.use([AdminKey("new", "another-key", False)])
    assert (await client.get("/v1/things", headers=key(OPS))).status == 403
    reply = await client.get("/v1/things", headers=key("another-key"))
    assert (reply.status, await reply.text()) == (200, "new")


def test_the_same_rules_keep_the_tokens_and_others_replace_them() -> None:
    """So that a reload does not forget the issuer's keys."""
    access, rules = Access(), TokenRules(secret="x" * 32)
    access.use([], rules)
    first = access.tokens
    access.use(KEYS, TokenRules(secret="x" * 32))
    assert access.tokens is first is not None
    access.use(KEYS, TokenRules(secret="y" * 32))
    assert access.tokens not in (first, None)
    access.use(KEYS)
    assert access.tokens is None


async def test_beyond_the_limit_failures_say_so_and_valid_credentials_pass(
    client: Client, clock: Clock, watcher: Watcher
) -> None:
    """Ten a minute, all of them 403; what brings no credential at all is no attempt."""
    for index in range(10):
        reply = await client.get("/v1/things", headers=key("wrong") if index % 2 else bearer("wrong"))
        assert (reply.status, reply.headers.get("Retry-After")) == (403, None)
        clock.now += 1
    for headers in (key("wrong"), bearer("wrong"), key(OPS[:-1])):
        reply = await client.get("/v1/nothing", headers=headers)
        assert (reply.status, reply.headers["Retry-After"]) == (403, "50")
        assert "too many failures" in (await reply.json(content_type=None))["detail"]
        assert (await client.get("/v1/things", headers=key(OPS))).status == 200
        assert (await client.post("/v1/things", headers=bearer(ADMIN_TOKEN))).status == 200
        for other in ({}, key(WATCHER)):
            reply = await client.post("/v1/things", headers=other)
            assert (reply.status, reply.headers.get("Retry-After")) == (403, None)
    clock.now += 50
    told = [(await client.get("/v1/things", headers=key("wrong"))).headers for _ in range(2)]
    assert ["Retry-After" in headers for headers in told] == [False, True]
    assert len(watcher.failures) == 10 + 3 * 3 + 2


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them whichever fits, and values of one length, so that no length shows either."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "hmac", type("hmac", (), {"compare_digest": staticmethod(compare)}))
    found = {OPS: KEYS[0], WATCHER: KEYS[2], "wrong": None, "": None, "\udcff": None}
    for given, expected in found.items():
        compared.clear()
        assert find_key(KEYS, given) is expected
        assert len(compared) == len(KEYS)
        assert {len(each) for pair in compared for each in pair} == {32}


def test_a_key_is_not_shown() -> None:
    assert OPS not in repr(KEYS)
