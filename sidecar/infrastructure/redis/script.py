"""One script on the server: called by its digest, sent whole when the server does not know it (any more)."""

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError


class Script:
    def __init__(self, redis: Redis, source: str) -> None:
        self._redis = redis
        self._source = source
        self._digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Run it. Raises what redis-py raises.

        NOSCRIPT means that nothing ran, so sending the whole script then cannot charge twice.
        """
        try:
            return await self._redis.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._redis.eval(self._source, len(keys), *keys, *arguments)
