"""`sidecar check FILE --connect`: what is said about a store before traffic depends on it."""

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from sidecar.cli import main
from sidecar.infrastructure.redis.diagnosis import COMMANDS, acl_line
from tests.parts import StoreServer, free_port, require, until
from tests.replicas import done
from tests.sidecar_process import SidecarProcess
from tests.topologies import ClusterServers, SentinelServers, ask

RULE: dict[str, Any] = {"identifier_type": "session_id", "limit": 5, "window_seconds": 3600}
ALGORITHMS = ("sliding_window", "sliding_window_counter", "fixed_window", "token_bucket")
PREFIX, PASSWORD = "acl", "SUPERSECRET"
WORKS = "store: everything that the sidecar asks of the store is allowed and works"


@pytest.fixture(scope="module", params=["redis 6.2", "redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with StoreServer(require(request.param), tcp=True) as running:
        yield running


@pytest.fixture(scope="module")
def valkey(valkey_binary: Path) -> Iterator[StoreServer]:
    with StoreServer(valkey_binary, tcp=True) as running:
        yield running


def checked(folder: Path, url: str, **store: Any) -> tuple[int, list[str], list[str]]:
    """Exit code, what is well, and what is not."""
    file = folder / "sidecar.yaml"
    rules = [{"id": "r", "route": "/*", **RULE}]
    written = {
        "store": {"url": url, "key_prefix": PREFIX, "timeout_ms": 5000, **store},
        "default_client": "c",
        "clients": [{"id": "c", "rules": rules}],
    }
    file.write_text(json.dumps(written))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["check", str(file), "--connect"])
    assert PASSWORD not in out.getvalue() + err.getvalue()
    return (
        code,
        out.getvalue().splitlines(),
        [line for line in err.getvalue().splitlines() if "store: " in line],
    )


def allow(server: StoreServer, line: str, user: str = "sidecar") -> str:
    """The URL of a user who is allowed exactly what the line says."""
    words = line.replace("PASSWORD", PASSWORD).replace("SETUSER sidecar", f"SETUSER {user}").split()
    ask(server, "ACL", "DELUSER", user)
    assert ask(server, *words)
    return f"redis://{user}:{PASSWORD}@127.0.0.1:{server.port}"


def keys(server: StoreServer) -> set[str]:
    with Redis(unix_socket_path=str(server.socket)) as redis:
        return {key.decode() for key in redis.scan_iter()}


def test_a_good_store_is_described_and_left_as_it_was(server: StoreServer, tmp_path: Path) -> None:
    """Version, round trip, clocks; nothing is left behind, and no sidecar hears of it."""
    with Redis(unix_socket_path=str(server.socket)) as redis:
        redis.flushall()
    code, well, wrong = checked(tmp_path, server.url)
    assert (code, wrong) == (0, [])
    version, round_trip, clock, works, no_error = well
    assert version.removeprefix("store: ").split()[0] in ("Redis", "Valkey")
    assert round_trip.startswith("store: round trip ")
    assert clock.startswith("store: its clock differs from this host's by ")
    assert works == WORKS
    assert no_error.endswith("1 client, 1 rule, no error")
    assert {key for key in keys(server) if "!" not in key} == set()  # the census lasts two seconds


async def test_the_least_that_it_names_is_enough_for_all_that_a_sidecar_does(
    server: StoreServer, tmp_path: Path
) -> None:
    """Counting, changes and their announcements, state, resets, the audit list, the census, live ones."""
    url = allow(server, acl_line(PREFIX))
    code, well, wrong = await asyncio.to_thread(checked, tmp_path, url)
    assert (code, wrong) == (0, [])
    assert WORKS in well
    rules = [{"id": name, "route": f"/{name}", **RULE, "algorithm": name} for name in ALGORITHMS]
    client = {"id": "c", "rules": rules}
    config = {"default_client": "c", "clients": [client], "store": {"url": url, "key_prefix": PREFIX}}
    with SidecarProcess(tmp_path, config) as sidecar:
        for name in ALGORITHMS:
            answers = [sidecar.ask("GET", f"/authz/{name}", {"X-Session-Id": "s"}) for _ in range(6)]
            assert [answer.status for answer in answers] == [200] * 5 + [429]
        state = done(sidecar.admin("GET", "/v1/clients/c/state")).json
        assert len(state["rules"]) == len(ALGORITHMS)
        changed = sidecar.admin("PATCH", "/v1/clients/c/policies/fixed_window", {"limit": 6})
        done(changed)
        reply = sidecar.ask("GET", "/authz/fixed_window", {"X-Session-Id": "s"})
        assert (reply.status, reply.headers["x-ratelimit-limit"]) == (200, "6")
        done(sidecar.admin("PUT", "/v1/enforcement", {"enforcement": "shadow"}))
        done(sidecar.admin("DELETE", "/v1/enforcement"), 204)
        found = done(sidecar.admin("GET", "/v1/clients/c/policies/token_bucket/identifiers"))
        assert found.json["identifiers"]
        done(sidecar.admin("DELETE", "/v1/clients/c/counters?policy=token_bucket"))
        assert sidecar.ask("GET", "/authz/token_bucket", {"X-Session-Id": "s"}).status == 200
        assert len(done(sidecar.admin("GET", "/v1/audit")).json["entries"]) >= 4
        done(sidecar.ask("POST", "/rate/check", {"X-User-Id": "1"}, b'{"endpoint": "/x"}'))
        done(sidecar.admin("DELETE", "/rate/reset/1"))

        def metrics() -> list[str]:
            return sidecar.admin("GET", "/metrics").body.decode().splitlines()

        for number in range(7):
            sidecar.ask("GET", "/authz/sliding_window", {"X-Session-Id": f"s{number}"})
        wanted = 'rate_limit_live_identifiers{client="c",rule="sliding_window"} 8.0'
        await until(lambda: wanted in metrics(), "identifiers are counted")
        assert "rate_limit_live_processes 1.0" in metrics()
        assert "rate_limit_store_evicts 0.0" in metrics()


@pytest.mark.parametrize("missing", ["zadd", "evalsha", "scan", "hgetall", "publish", "pfcount", "unlink"])
def test_a_command_that_a_user_lacks_is_named_with_the_least_that_it_needs(
    valkey: StoreServer, tmp_path: Path, missing: str
) -> None:
    url = allow(valkey, f"{acl_line(PREFIX)} -{missing}", user="lacking")
    code, well, wrong = checked(tmp_path, url)
    assert code == 1
    assert WORKS not in well
    assert any(missing in line and line.startswith("error: store: cannot ") for line in wrong)
    assert wrong[-1] == f"error: store: the least that a user has to be allowed: {acl_line(PREFIX)}"


def test_keys_and_channels_of_another_prefix_are_not_enough(valkey: StoreServer, tmp_path: Path) -> None:
    url = allow(valkey, acl_line("other"), user="elsewhere")
    code, _, wrong = checked(tmp_path, url)
    assert code == 1
    assert f"~{PREFIX}:v1:*" in wrong[-1]


def test_a_user_who_may_not_ask_for_information_is_only_warned(valkey: StoreServer, tmp_path: Path) -> None:
    """Nothing that is counted depends on it."""
    url = allow(valkey, f"{acl_line(PREFIX)} -info", user="blind")
    code, well, (warning,) = checked(tmp_path, url)
    assert code == 0
    assert WORKS in well
    assert warning.startswith("warning: store: version and eviction cannot be seen")


def test_a_numbered_database_needs_one_command_more(valkey: StoreServer, tmp_path: Path) -> None:
    url = allow(valkey, acl_line(PREFIX, database=True), user="numbered")
    assert checked(tmp_path, f"{url}/3")[0] == 0


def test_a_wrong_password_and_a_closed_port_are_one_line_each(valkey: StoreServer, tmp_path: Path) -> None:
    """Without what was sent."""
    allow(valkey, acl_line(PREFIX))
    code, _, wrong = checked(tmp_path, f"redis://sidecar:{PASSWORD}-wrong@127.0.0.1:{valkey.port}")
    assert code == 1
    (line,) = wrong
    assert line.startswith("error: store: cannot connect: ")
    assert "password" in line.lower()
    code, _, wrong = checked(tmp_path, f"redis://sidecar:{PASSWORD}@127.0.0.1:{free_port()}")
    assert code == 1
    (line,) = wrong
    assert line.startswith("error: store: cannot connect: Error 111 connecting to 127.0.0.1:")


def test_a_password_that_is_asked_for_is_said(valkey_binary: Path, tmp_path: Path) -> None:
    with StoreServer(valkey_binary, tcp=True, settings={"requirepass": PASSWORD}) as server:
        code, _, wrong = checked(tmp_path, server.url)
        assert code == 1
        assert "uthentication" in wrong[0]
        assert checked(tmp_path, f"redis://:{PASSWORD}@127.0.0.1:{server.port}")[0] == 0


def test_a_store_that_evicts_is_a_warning(valkey: StoreServer, tmp_path: Path) -> None:
    ask(valkey, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        code, well, (warning,) = checked(tmp_path, valkey.url)
    finally:
        ask(valkey, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert code == 0
    assert WORKS in well
    assert warning.startswith("warning: store: maxmemory-policy is allkeys-lru")


def test_a_time_limit_that_leaves_no_room_is_a_warning(valkey: StoreServer, tmp_path: Path) -> None:
    """A server that answers only after a while, as one that is far away does."""
    ask(valkey, "CONFIG", "SET", "latency-monitor-threshold", "0")
    code, _, wrong = checked(tmp_path, valkey.url, timeout_ms=1)
    assert code == 0
    assert all("store.timeout_ms of 1 leaves little room" in line for line in wrong)


def test_a_replica_is_an_error_and_no_matter_of_permissions(
    valkey: StoreServer, valkey_binary: Path, tmp_path: Path
) -> None:
    with StoreServer(valkey_binary, tcp=True) as replica:
        ask(replica, "REPLICAOF", "127.0.0.1", valkey.port)
        code, _, wrong = checked(tmp_path, replica.url)
    assert code == 1
    assert wrong[0] == "error: store: this server is a replica, which refuses to be written"
    assert not any("has to be allowed" in line for line in wrong)


def test_the_embedded_store_needs_no_look(tmp_path: Path) -> None:
    """`serve` starts it, as it has to be."""
    code, well, wrong = checked(tmp_path, f"embedded:{tmp_path}/store")
    assert (code, wrong) == (0, [])
    assert "the store is embedded" in well[0]
    assert not (tmp_path / "store").exists()


def test_a_cluster_is_looked_at_like_one_server(valkey_binary: Path, tmp_path: Path) -> None:
    """With a user on each who is allowed the least, which is a little more there."""
    with ClusterServers(valkey_binary, primaries=3, replicas=0) as cluster:
        for server in cluster.servers:
            allow(server, acl_line(PREFIX, cluster=True))
        url = cluster.url.replace("://", f"://sidecar:{PASSWORD}@")
        code, well, wrong = checked(tmp_path, url)
        assert (code, wrong) == (0, [])
        assert WORKS in well
        for server in cluster.servers:
            allow(server, f"{acl_line(PREFIX, cluster=True)} -zadd")
        code, _, wrong = checked(tmp_path, url)
        assert code == 1
        assert wrong[-1].endswith(acl_line(PREFIX, cluster=True))


def test_sentinels_are_asked_for_the_primary(valkey_binary: Path, tmp_path: Path) -> None:
    with SentinelServers(valkey_binary, replicas=1) as sentinels:
        code, well, wrong = checked(tmp_path, sentinels.url)
    assert (code, wrong) == (0, [])
    assert WORKS in well


def test_every_command_that_is_named_is_needed_or_asked_for() -> None:
    """No command twice, and none that is dangerous."""
    assert len(COMMANDS) == len(set(COMMANDS))
    assert not {"flushall", "flushdb", "keys", "config", "acl", "shutdown", "debug"}.intersection(COMMANDS)
