"""What can be told about a store before traffic depends on it: `sidecar check --connect`.

Everything that the sidecar will ask of the store is tried once, on keys that no client has, and taken away
again. What a user of the store may not do is found by doing it: rules of an ACL are not to be parsed here.
"""

import asyncio
import re
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from sidecar.application.ports import NO_EVICTION, AuditEntry, StoredClient, StoreUnavailable
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check
from sidecar.domain.identity import EVERYONE
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.redis.calling import Caller
from sidecar.infrastructure.redis.cluster import Cluster
from sidecar.infrastructure.redis.connection import Store, close, connect, one_of
from sidecar.infrastructure.redis.control import RedisControlStore
from sidecar.infrastructure.redis.counters import RedisCounterStore
from sidecar.infrastructure.redis.hits import LAYOUT

#: What one question may take.
PATIENCE_SECONDS = 5.0
ROUND_TRIPS = 20
OLDEST = (6, 2)
#: By how much hosts' clocks may differ before it is worth a word; nothing is counted by them.
CLOCK_SECONDS = 1.0
#: Everything that is sent, and everything that the scripts call.
COMMANDS = (
    *("ping", "info", "evalsha", "eval", "time", "get", "set", "exists", "pexpire", "pttl", "unlink", "scan"),
    *("hget", "hgetall", "hset", "hdel", "hincrby", "lpush", "lrange", "ltrim", "publish", "subscribe"),
    *("zadd", "zcard", "zcount", "zrange", "zrangebyscore", "zrank", "zremrangebyrank", "zremrangebyscore"),
    *("pfadd", "pfcount"),
)
_CLUSTER_COMMANDS = ("cluster|slots", "asking")
_CLIENT = "sidecar.check"
#: What the store says where a user may not do something, in a script and out of one.
_NOT_ALLOWED = re.compile("NOPERM|no permissions|can't run this command|ACL failure|NoPermissionError")
_PASSWORD = re.compile(r"//[^/?#]*@")


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    text: str


async def diagnose(url: str, prefix: str, timeout_ms: int) -> AsyncIterator[Finding]:
    """Each finding as it is made; an error is what keeps the sidecar from counting."""
    store = connect(url, PATIENCE_SECONDS)
    try:
        try:
            first = await _seconds(_ping(store))
        except (RedisError, OSError, TimeoutError) as error:
            yield Finding(Level.ERROR, f"cannot connect: {_without_password(error)}")
            return
        async for finding in _findings(store, prefix, timeout_ms, first):
            yield finding
    finally:
        await close(store)


def acl_line(prefix: str, *, cluster: bool = False, database: bool = False) -> str:
    """The least that a user of the store has to be allowed; `database`: it is not the first one."""
    allowed = [*COMMANDS, *(_CLUSTER_COMMANDS if cluster else ()), *(["select"] if database else ())]
    keys = f"{prefix}:{LAYOUT}:*"
    return " ".join(
        ["ACL SETUSER sidecar on >PASSWORD resetkeys", f"~{keys}", "resetchannels", f"&{keys}", "-@all"]
        + [f"+{command}" for command in allowed]
    )


async def _findings(store: Store, prefix: str, timeout_ms: int, first: float) -> AsyncIterator[Finding]:
    of_server = [finding async for finding in _of_server(store)]
    for finding in of_server:
        yield finding
    if any(finding.level is Level.ERROR for finding in of_server):
        return  # what else does not work follows from that
    yield await _round_trip(store, timeout_ms, first)
    yield await _clock(store)
    lacking = [found async for found in _lacking(store, prefix)]
    for finding in lacking:
        yield finding
    if any(_NOT_ALLOWED.search(finding.text) for finding in lacking):
        line = acl_line(prefix, cluster=isinstance(store, Cluster), database=_has_database(store))
        yield Finding(Level.ERROR, f"the least that a user has to be allowed: {line}")
    if not lacking:
        yield Finding(Level.OK, "everything that the sidecar asks of the store is allowed and works")


def _has_database(store: Store) -> bool:
    return isinstance(store, Redis) and bool(store.connection_pool.connection_kwargs.get("db"))


async def _of_server(store: Store) -> AsyncIterator[Finding]:
    """Version and eviction; a user who may not ask is no error."""
    try:
        info: Any = await (await one_of(store)).info()
    except RedisError as error:
        yield Finding(Level.WARNING, f"version and eviction cannot be seen, here and while serving: {error}")
        return
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version", ""))
    compatible = tuple(int(part) for part in re.findall(r"\d+", str(info.get("redis_version", "")))[:2])
    level = Level.OK if compatible >= OLDEST else Level.ERROR
    yield Finding(level, f"{name} {version}" + ("" if level is Level.OK else ": 6.2 or newer is needed"))
    policy = info.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION:
        yield Finding(
            Level.WARNING,
            f"maxmemory-policy is {policy}: the store may forget counters, and so admit more than the limit; "
            f"expected {NO_EVICTION}",
        )
    if info.get("role") == "slave":
        yield Finding(Level.ERROR, "this server is a replica, which refuses to be written")


async def _round_trip(store: Store, timeout_ms: int, first: float) -> Finding:
    times = sorted([await _seconds(_ping(store)) for _ in range(ROUND_TRIPS)])
    median, worst = statistics.median(times) * 1000, times[-1] * 1000
    text = (
        f"round trip {median:.2f} ms (median of {ROUND_TRIPS}; longest {worst:.2f}, first {first * 1000:.2f})"
    )
    if worst * 2 > timeout_ms:
        return Finding(Level.WARNING, f"{text}: store.timeout_ms of {timeout_ms} leaves little room")
    return Finding(Level.OK, text)


async def _clock(store: Store) -> Finding:
    before = time.time()
    try:
        seconds, microseconds = await (await one_of(store)).time()
    except RedisError as error:
        return Finding(Level.ERROR, f"its clock cannot be read: {error}")
    difference = seconds + microseconds / 1_000_000 - (before + time.time()) / 2
    text = f"its clock differs from this host's by {difference:+.3f} s"
    if abs(difference) > CLOCK_SECONDS:
        return Finding(Level.WARNING, f"{text}: counters go by the store's, logs by this host's")
    return Finding(Level.OK, text)


async def _lacking(store: Store, prefix: str) -> AsyncIterator[Finding]:
    """What does not work, each with the server's own words."""
    counters = RedisCounterStore(store, prefix=prefix, timeout_seconds=PATIENCE_SECONDS)
    # Keys like those of the sidecars that are running, which are not to hear of this.
    control = RedisControlStore(store, prefix=(own := f"{prefix}:{LAYOUT}:check"))
    checks = [_check(algorithm) for algorithm in Algorithm]
    tried: dict[str, Callable[[], Awaitable[object]]] = {
        "count requests": lambda: _counted(counters, checks),
        "search counters": lambda: counters.identifiers(_CLIENT, checks[0].rule, 0, 0),
        "count identifiers": lambda: counters.live_identifiers(_CLIENT, checks[0].rule, 0, ["=x"]),
        "reset counters": lambda: counters.forget(checks),
        "keep what the admin API changes": lambda: _changed(control),
        "read what it keeps": control.load,
        "read the audit list": lambda: control.audit(0, 1),
        "count live processes": lambda: control.live_processes(_CLIENT),
        "hear of changes": lambda: _subscribed(store, f"{own}:{LAYOUT}:{{control}}"),
        "clean up after this": lambda: _cleaned(store, f"{own}:{LAYOUT}:{{control}}"),
    }
    for what, attempt in tried.items():
        try:
            await attempt()
        except (StoreUnavailable, RedisError, OSError, TimeoutError) as error:
            yield Finding(Level.ERROR, f"cannot {what}: {_without_password(error)}")


async def _changed(control: RedisControlStore) -> None:
    """Each kind of change: what is not there yet, what is, and what is taken away."""
    client = StoredClient(Client(id=_CLIENT), datetime.now(UTC))
    entry = AuditEntry(at=datetime.now(UTC), by=_CLIENT, action="check", subject=_CLIENT)
    await control.replace_client(_CLIENT, None, client, entry)
    stored = (await control.load()).clients.get(_CLIENT)
    await control.replace_client(_CLIENT, stored, None, entry)
    await control.reset(_CLIENT, "*", entry)


async def _cleaned(store: Store, key: str) -> None:
    caller = Caller(store)
    await caller.ask(caller.slot("control"), "UNLINK", key, f"{key}:audit", f"{key}:live")


async def _counted(counters: RedisCounterStore, checks: list[Check]) -> None:
    """Twice: what is written anew and what is changed are other commands."""
    await counters.hit(checks)
    await counters.hit(checks)


async def _subscribed(store: Store, channel: str) -> None:
    async with (await one_of(store)).pubsub() as subscription:
        await subscription.subscribe(channel)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await subscription.get_message(timeout=PATIENCE_SECONDS)


def _check(algorithm: Algorithm) -> Check:
    rule = Rule(
        id=algorithm.value,
        route="/*",
        identifier_type="none",
        algorithm=algorithm,
        limit=100,
        window_seconds=1,
    )
    terms = rule.terms()
    return Check(_CLIENT, rule, EVERYONE, terms.limit, terms.capacity, cost=1)


async def _ping(store: Store) -> None:
    await (await one_of(store)).ping()


async def _seconds(asked: Awaitable[None]) -> float:
    started = time.perf_counter()
    await asked
    return time.perf_counter() - started


def _without_password(error: Exception) -> str:
    return _PASSWORD.sub("//***@", str(error)) or type(error).__name__
