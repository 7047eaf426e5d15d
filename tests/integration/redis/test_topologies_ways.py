"""Each way to a store, by the URL that is written for it: counting, the API's data, searching, resetting."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sidecar.application.ports import NO_EVICTION, AuditEntry, StoredClient, StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.rule import Client, Enforcement
from sidecar.infrastructure.config.store_url import check_store_url
from sidecar.infrastructure.redis.connection import Store, close, connect
from sidecar.infrastructure.redis.control import RedisControlStore
from sidecar.infrastructure.redis.counters import RedisCounterStore
from sidecar.infrastructure.redis.diagnosis import acl_line
from tests.certificates import Authority
from tests.integration.redis.counting import check, connected, rule, store_on, used
from tests.parts import StoreServer, require, until
from tests.topologies import NAME, ClusterServers, SentinelServers, ask

#: The least that is allowed a user, of one server and of a cluster's; every test has a prefix of its own.
USER, CLUSTER_USER = (
    acl_line("*", cluster=cluster).replace("PASSWORD", "p@ss/word").split() for cluster in (False, True)
)
WHO = "sidecar:p%40ss%2Fword@"
CREATED = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Ways:
    """The URL of each; its servers live as long as the module's tests."""

    def __init__(self, stack: ExitStack, authority: Authority) -> None:
        self._stack = stack
        self._authority = authority
        self._certificate, self._key = authority.certify("server", "127.0.0.1", "::1")

    def socket_and_database(self) -> str:
        return f"{self._one('valkey').url}?db=3"

    def database(self) -> str:
        return f"{self._one('redis', tcp=True).url}/15"

    def oldest(self) -> str:
        return self._one("redis 6.2").url

    def password(self) -> str:
        server = self._one("redis", tcp=True, requirepass="s/ecret")
        return f"redis://:s%2Fecret@127.0.0.1:{server.port}"

    def user(self) -> str:
        server = self._one("redis 6.2", tcp=True)
        ask(server, *USER)
        ask(server, "ACL", "SETUSER", "default", "off")
        return f"redis://{WHO}127.0.0.1:{server.port}"

    def ipv6(self) -> str:
        return f"redis://[::1]:{self._one('valkey', tcp=True, bind='::1').port}"

    def tls(self) -> str:
        server = self._one("redis", tcp=True, **self._tls())
        return f"rediss://127.0.0.1:{server.port}?{self._files()}"

    def sentinel(self) -> str:
        """The first one that is named is not there."""
        url = self._stack.enter_context(SentinelServers(require("valkey"), replicas=1)).url
        return f"{url.replace('//', '//127.0.0.1:1,')}/5"

    def oldest_sentinel(self) -> str:
        return self._stack.enter_context(SentinelServers(require("redis 6.2"), replicas=1)).url

    def sentinel_with_users(self) -> str:
        """The one of the sentinels is another than that of the store."""
        more = f"requirepass other\nsentinel sentinel-pass other\nsentinel auth-pass {NAME} inner"
        settings = {"requirepass": "inner", "masterauth": "inner"}
        servers = SentinelServers(
            require("redis"), replicas=0, settings=settings, more=more, password="other"
        )
        url = self._stack.enter_context(servers).url
        ask(servers.primary, *USER, password="inner")
        return f"{url.replace('//', f'//{WHO}')}?sentinel_password=other"

    def sentinel_over_tls(self) -> str:
        more = "\n".join(f"{name} {value}" for name, value in self._tls().items()) + "\ntls-replication yes"
        servers = SentinelServers(require("redis"), replicas=0, settings=self._tls(), more=more)
        url = self._stack.enter_context(servers).url
        return f"{url.replace('redis', 'rediss', 1)}/1?{self._files()}"

    def cluster(self) -> str:
        """The first one that is named is not there."""
        url = self._stack.enter_context(ClusterServers(require("valkey"))).url
        return url.replace("//", "//127.0.0.1:1,")

    def oldest_cluster(self) -> str:
        """Of one named server the others are learnt."""
        url = self._stack.enter_context(ClusterServers(require("redis 6.2"), replicas=0)).url
        return url.partition(",")[0]

    def cluster_over_ipv6(self) -> str:
        return self._stack.enter_context(ClusterServers(require("valkey"), replicas=0, host="::1")).url

    def cluster_with_a_user(self) -> str:
        servers = ClusterServers(require("valkey"), replicas=0)
        url = self._stack.enter_context(servers).url
        for server in servers.servers:
            ask(server, *CLUSTER_USER)
            ask(server, "ACL", "SETUSER", "default", "off")
        return url.replace("//", f"//{WHO}")

    def cluster_over_tls(self) -> str:
        settings = self._tls() | {"tls-cluster": "yes"}
        servers = ClusterServers(require("redis"), replicas=0, settings=settings)
        url = self._stack.enter_context(servers).url
        return f"{url.replace('redis', 'rediss', 1)}?{self._files()}"

    def _one(self, part: str, *, tcp: bool = False, **settings: str) -> StoreServer:
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        return self._stack.enter_context(StoreServer(require(part), tcp=tcp, settings=named))

    def _tls(self) -> dict[str, str]:
        return {
            "tls-cert-file": str(self._certificate),
            "tls-key-file": str(self._key),
            "tls-ca-cert-file": str(self._authority.file),
            "tls-auth-clients": "yes",
        }

    def _files(self) -> str:
        certificate, key = self._authority.certify("client")
        return f"ssl_ca_certs={self._authority.file}&ssl_certfile={certificate}&ssl_keyfile={key}"


NAMES = [name for name in vars(Ways) if not name.startswith("_")]


@pytest.fixture(scope="module")
def ways(authority: Authority) -> Iterator[Mapping[str, str]]:
    """All are made at once: each waits for its servers to find each other."""
    with ExitStack() as stack, ThreadPoolExecutor() as together:
        made = Ways(stack, authority)
        yield dict(
            zip(NAMES, together.map(lambda way: check_store_url(getattr(made, way)()), NAMES), strict=True)
        )


@pytest.fixture(params=NAMES)
async def store(request: pytest.FixtureRequest, ways: Mapping[str, str]) -> AsyncIterator[Store]:
    async with connected(ways[request.param]) as redis:
        yield redis


def entry(subject: str) -> AuditEntry:
    return AuditEntry(CREATED, "ops", "client.replace", subject, None, {"name": "Größe"})


async def test_several_rules_are_one_step_and_exact(store: Store, key_prefix: str) -> None:
    """Of a hundred at once on a rule of ten and one of thirty, ten pass and are charged to both."""
    counters = store_on(store, key_prefix)
    for client in "abcdef":  # in a cluster, on all servers
        checks = [
            replace(check(rule(algorithm, limit, 3600, name=algorithm.value)), client_id=client)
            for algorithm, limit in zip(Algorithm, (10, 30, 40, 50), strict=True)
        ]
        answers = await asyncio.gather(*(counters.hit(checks) for _ in range(100)))
        assert [answer.admitted for answer in answers].count(True) == 10
        assert used(await counters.hit(checks, charge=False)) == [10] * 4


async def test_counters_are_found_and_forgotten(store: Store, key_prefix: str) -> None:
    """Those of one client's rule, and no others."""
    counters = store_on(store, key_prefix)
    counted = rule(Algorithm.TOKEN_BUCKET, 5, 3600)
    for client in "ab":
        wanted = [replace(check(counted, identifier=f"=ü{n}"), client_id=client) for n in range(20)]
        await asyncio.gather(*(counters.hit([one]) for one in wanted))
    assert await found(counters, "a") == {f"=ü{n}" for n in range(20)}
    assert await counters.forget([replace(one, client_id="a") for one in wanted]) == 20
    assert (await found(counters, "a"), len(await found(counters, "b"))) == (set(), 20)


async def found(counters: RedisCounterStore, client: str) -> set[str]:
    names: set[str] = set()
    cursor: int | None = None
    while cursor != 0:
        counted = rule(Algorithm.TOKEN_BUCKET, 5, 3600)
        cursor, page = await counters.identifiers(client, counted, 0, cursor or 0)
        names.update(page)
    return names


async def test_what_the_api_keeps_is_kept_told_and_announced(store: Store, key_prefix: str) -> None:
    """A client, the switch, a reset, the audit list, live processes; a change is heard of."""
    control = RedisControlStore(store, prefix=key_prefix)
    new = StoredClient(Client(id="a", name="Größe"), CREATED)
    announcements = control.announcements()
    assert isinstance(announcements, AsyncGenerator)
    async with aclosing(announcements):
        heard = asyncio.ensure_future(anext(announcements))
        changes = 0

        async def is_heard() -> bool:
            nonlocal changes
            changes += 1
            await control.reset("a", "r", entry("reset"))
            return heard.done()

        await until(is_heard, "a change is heard of")  # subscribing is not waited for
        await heard
    assert await control.replace_client("a", None, new, entry("a"))
    assert not await control.replace_client("a", None, new, entry("a"))
    assert await control.replace_enforcement(None, Enforcement.SHADOW, entry("switch"))
    state = await control.load()
    assert (state.clients["a"].client, state.enforcement) == (new.client, Enforcement.SHADOW)
    assert (state.resets, await control.version()) == ({("a", "r"): changes}, state.version)
    assert [one.subject for one in await control.audit(0, 2)] == ["switch", "a"]
    assert [await control.live_processes(name) for name in "aba"] == [1, 2, 2]
    assert await control.eviction_policy() == NO_EVICTION


async def test_a_server_that_the_private_authority_did_not_certify_is_not_spoken_to(
    ways: Mapping[str, str], tmp_path: Path
) -> None:
    """And one that does not know us does not speak to us."""
    url, _, options = ways["tls"].partition("?")
    stranger = Authority(tmp_path)
    certificate, key = stranger.certify("client")
    for strange in (
        f"ssl_ca_certs={stranger.file}&ssl_certfile={certificate}&ssl_keyfile={key}",
        f"{options.partition('&')[0]}&ssl_certfile={certificate}&ssl_keyfile={key}",
    ):
        async with connected(f"{url}?{strange}", 1.0) as redis:
            counters = RedisCounterStore(redis, prefix="t", timeout_seconds=1.0)
            with pytest.raises(StoreUnavailable):
                await counters.hit([check(rule(Algorithm.FIXED_WINDOW, 1))])


async def test_a_server_that_hangs_at_the_end_is_left(authority: Authority) -> None:
    """Over TLS each side says goodbye: one that does not is no failure of ours."""
    certificate, key = authority.certify("server", "127.0.0.1")
    settings = {"tls-cert-file": str(certificate), "tls-key-file": str(key), "tls-auth-clients": "no"}
    settings["tls-ca-cert-file"] = str(authority.file)
    with StoreServer(require("redis"), tcp=True, settings=settings) as server:
        redis = connect(f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={authority.file}", 0.5)
        await store_on(redis, "t").hit([check(rule(Algorithm.FIXED_WINDOW, 1))])
        os.kill(server.pid, signal.SIGSTOP)
        await close(redis)
