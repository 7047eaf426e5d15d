"""The clients that the API made, in one hash of the store: id → client as JSON."""

import json
import logging
from collections.abc import Mapping
from datetime import datetime

from redis.asyncio import Redis

from sidecar.application.ports import StoredClient
from sidecar.domain.rule import Client
from sidecar.infrastructure.redis import scripts
from sidecar.infrastructure.redis.connection import translated
from sidecar.infrastructure.redis.counters import LAYOUT
from sidecar.infrastructure.redis.script import Script
from sidecar.infrastructure.validation import dump, reader

_log = logging.getLogger("sidecar.store")
_read_client = reader(Client)


class RedisClientRepository:
    """The `ClientRepository` on Redis. A `StoredClient`'s version is the stored text itself."""

    def __init__(self, redis: Redis, *, prefix: str) -> None:
        self._redis = redis
        self._key = f"{prefix}:{LAYOUT}:clients"
        self._replace = Script(redis, scripts.replace_client())

    async def all(self) -> Mapping[str, StoredClient]:
        with translated():
            stored = await self._redis.hgetall(self._key)
        read = (_read(client_id, text) for client_id, text in stored.items())
        return {found.client.id: found for found in read if found}

    async def get(self, client_id: str) -> StoredClient | None:
        with translated():
            text = await self._redis.hget(self._key, client_id)
        return _read(client_id, text) if text else None

    async def replace(self, client_id: str, old: StoredClient | None, new: StoredClient | None) -> bool:
        arguments = [client_id, old.version if old else "", _written(new) if new else ""]
        with translated():
            return bool(await self._replace([self._key], arguments))


def _written(stored: StoredClient) -> str:
    return json.dumps({"created_at": stored.created_at.isoformat(), "client": dump(stored.client)})


def _read(client_id: bytes | str, stored: bytes | str) -> StoredClient | None:
    """What is stored, or `None` with an error in the log: one broken client takes no other down."""
    try:
        text = _text(stored)
        fields = json.loads(text)
        client = _read_client(json.dumps(fields["client"]))
        if client.id != _text(client_id):
            raise ValueError(f"{client.id!r} is stored as another")  # noqa: TRY301 - logged like the others
        created_at = datetime.fromisoformat(fields["created_at"])
    except (ValueError, KeyError, TypeError, RecursionError):
        _log.exception("a stored client is unreadable and left out")
        return None
    return StoredClient(client, created_at, version=text)


def _text(stored: bytes | str) -> str:
    return stored.decode() if isinstance(stored, bytes) else stored
