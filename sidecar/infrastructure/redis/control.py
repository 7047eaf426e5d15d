"""What the API keeps, in one hash of the store, so that a change and its version are one step.

| field | value |
|---|---|
| `version` | counts changes, from the microsecond of the first one |
| `client:{id}` | a client as JSON |
| `resets:{client}:{rule}` | how often a rule's counters were reset; the rule `*` stands for all |
| `enforcement` | the global switch, where the API has set it |

Beside it the audit list, newest first, and the set of live processes. All have one hash tag, so that a
cluster keeps them together; the channel of the hash's name announces changes.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from redis.exceptions import NoPermissionError

from sidecar.application.ports import NO_EVICTION, AuditEntry, ControlState, StoredClient
from sidecar.domain.rule import ID_PATTERN, Client, Enforcement
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.calling import Arguments, Caller, Script
from sidecar.infrastructure.redis.connection import Store, translated
from sidecar.infrastructure.redis.hits import LAYOUT
from sidecar.infrastructure.redis.wire import text as as_text
from sidecar.infrastructure.validation import dump, reader

AUDIT_ENTRIES = 1000
#: A process that said nothing for so long counts as gone; each says so about every 0.8 s.
LIVE_MS = 3000
#: What an audit entry may hold of each, before and after; of more it says that it is left out.
AUDIT_CHARACTERS = 16_384
_POLICY = re.compile(r"^maxmemory_policy:([\w-]+)", re.MULTILINE)
_log = logging.getLogger("sidecar.store")
_read_client = reader(Client)


class RedisControlStore:
    """The `ControlStore` on Redis. A `StoredClient`'s version is the stored text itself."""

    def __init__(self, redis: Store, *, prefix: str) -> None:
        self._caller = Caller(redis)
        self._slot = self._caller.slot("control")
        self._key = f"{prefix}:{LAYOUT}:{{control}}"
        self._change = Script(scripts.change_control())
        self._heartbeat = Script(scripts.heartbeat())
        self._clients: Mapping[str, StoredClient] = {}

    async def aclose(self) -> None:
        """To be called before its client is closed."""
        await self._caller.aclose()

    async def version(self) -> str:
        with translated():
            return as_text(await self._caller.ask(self._slot, "HGET", self._key, "version") or "")

    async def eviction_policy(self) -> str:
        """Of several servers, one that evicts if any does."""
        with translated():
            try:
                infos = await self._caller.everywhere("INFO", "memory")
            except NoPermissionError:
                return ""
        policies = set(_POLICY.findall("\n".join(map(as_text, infos))))
        return min(policies - {NO_EVICTION}, default=NO_EVICTION) if policies else ""

    async def live_processes(self, process: str) -> int:
        return await self._called(self._heartbeat, [f"{self._key}:live"], [process, LIVE_MS])

    async def load(self) -> ControlState:
        with translated():
            stored = [as_text(part) for part in await self._caller.ask(self._slot, "HGETALL", self._key)]
        fields = dict(zip(stored[::2], stored[1::2], strict=True))
        # In a thread: a client may have thousands of rules, and decisions are to go on.
        state = await asyncio.to_thread(_state, fields, self._clients)
        self._clients = state.clients
        return state

    async def replace_client(
        self, client_id: str, old: StoredClient | None, new: StoredClient | None, entry: AuditEntry
    ) -> bool:
        expected, wanted = old.version if old else "", _written(new) if new else ""
        return await self._made(entry, "replace", f"client:{client_id}", expected, wanted)

    async def replace_enforcement(
        self, old: Enforcement | None, new: Enforcement | None, entry: AuditEntry
    ) -> bool:
        return await self._made(entry, "replace", "enforcement", old or "", new or "")

    async def reset(self, client_id: str, rule_id: str, entry: AuditEntry) -> None:
        await self._made(entry, "increment", f"resets:{client_id}:{rule_id}", "", "")

    async def note(self, entry: AuditEntry) -> None:
        await self._made(entry)

    async def audit(self, skip: int, limit: int) -> Sequence[AuditEntry]:
        with translated():
            asked = "LRANGE", f"{self._key}:audit", skip, skip + limit - 1
            stored = await self._caller.ask(self._slot, *asked)
        return [entry for text in stored if (entry := _read_entry(as_text(text)))]

    async def announcements(self) -> AsyncIterator[None]:
        with translated():
            async with await self._caller.subscription(self._slot) as subscription:
                await subscription.subscribe(self._key)
                while True:
                    if await subscription.get_message(timeout=None):
                        yield

    async def _made(self, entry: AuditEntry, *change: str) -> bool:
        arguments: list[str | int] = [self._key, _written_entry(entry), AUDIT_ENTRIES, *change]
        return await self._called(self._change, [self._key, f"{self._key}:audit"], arguments) > 0

    async def _called(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> int:
        with translated():
            return int(await self._caller.call(script, self._slot, Arguments.of(keys, arguments)))


def _state(fields: Mapping[str, str], before: Mapping[str, StoredClient]) -> ControlState:
    """What can be read of it: one broken field takes no other down. What is as it was is not read again."""
    clients: dict[str, StoredClient] = {}
    unreadable: dict[str, StoredClient] = {}
    resets: dict[tuple[str, str], int] = {}
    for name, value in fields.items():
        kind, _, rest = name.partition(":")
        if kind == "client":
            known = before.get(rest)
            found = known if known and known.version == value else _read(rest, value)
            if found:
                clients[rest] = found
            elif ID_PATTERN.fullmatch(rest):
                unreadable[rest] = StoredClient(Client(id=rest), datetime.now(UTC), version=value)
        elif kind == "resets" and value.isdecimal():
            client_id, _, rule_id = rest.partition(":")
            resets[client_id, rule_id] = int(value)
    return ControlState(
        version=fields.get("version", ""),
        clients=clients,
        unreadable=unreadable,
        resets=resets,
        enforcement=_switch(fields.get("enforcement", "")),
    )


def _switch(stored: str) -> Enforcement | None:
    if stored and stored not in list(Enforcement):
        _log.error("the stored enforcement is unreadable and left out", extra={"stored": stored})
        return None
    return Enforcement(stored) if stored else None


def _written(stored: StoredClient) -> str:
    return json.dumps({"created_at": stored.created_at.isoformat(), "client": dump(stored.client)})


def _read(client_id: str, text: str) -> StoredClient | None:
    """What is stored, or `None` with an error in the log: one broken client takes no other down."""
    try:
        fields = json.loads(text)
        client = _read_client(json.dumps(fields["client"]))
        if client.id != client_id:
            raise ValueError(f"{client.id!r} is stored as another")  # noqa: TRY301 - logged like the others
        created_at = datetime.fromisoformat(fields["created_at"])
    except (ValueError, KeyError, TypeError, RecursionError):
        _log.exception("a stored client is unreadable and left out")
        return None
    return StoredClient(client, created_at, version=text)


def _written_entry(entry: AuditEntry) -> str:
    fields = asdict(entry) | {"at": entry.at.isoformat()}
    for name in ("before", "after"):
        if len(json.dumps(fields[name])) > AUDIT_CHARACTERS:
            fields[name] = {"left_out": f"more than {AUDIT_CHARACTERS} characters"}
    return json.dumps(fields)


def _read_entry(text: str) -> AuditEntry | None:
    try:
        fields = json.loads(text)
        return AuditEntry(**fields | {"at": datetime.fromisoformat(fields["at"])})
    except (ValueError, KeyError, TypeError):
        _log.exception("an entry of the audit list is unreadable and left out")
        return None
