"""The public keys that tokens are verified with: a JWKS document, fetched or from a file, and kept.

A set that cannot be had or read leaves the last good one in force: an issuer that is down must not lock
operators out. Whatever a stranger sends makes the issuer be asked at most once in `RETRY_SECONDS`.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from pathlib import Path
from stat import S_ISREG
from typing import Any

import aiohttp
import jwt

REFRESH_SECONDS = 300.0
#: The least time between two attempts to fetch.
RETRY_SECONDS = 10.0
FETCH_SECONDS = 3.0
#: The least time between two looks at a file.
LOOK_SECONDS = 1.0
MAX_BYTES = 256 * 1024
#: With their private parts left out, a key is never more than its public one.
_PUBLIC = ("kty", "n", "e", "crv", "x", "y", "alg")
_log = logging.getLogger("sidecar.admin")

Fetch = Callable[[], Awaitable[bytes]]
Stamp = tuple[int, int, int]


class KeySet:
    """The usable keys of a JWKS document; raises `ValueError` for what is none."""

    def __init__(self, document: bytes, algorithms: Sequence[str]) -> None:
        if len(document) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        self._keys: dict[str, list[tuple[Any, jwt.PyJWK]]] = {algorithm: [] for algorithm in algorithms}
        for key in _members(document):
            for algorithm in algorithms:
                if (usable := _usable(key, algorithm)) is not None:
                    self._keys[algorithm].append((key.get("kid"), usable))

    def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key of that name; without a name, the only one there is for the algorithm."""
        keys = self._keys.get(algorithm, [])
        if kid is None:
            return keys[0][1] if len(keys) == 1 else None
        return next((key for name, key in keys if name == kid), None)


class FetchedKeys:
    """An issuer's keys: fetched when first needed, every five minutes, and when a token names another."""

    def __init__(self, fetch: Fetch, algorithms: Sequence[str], clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._algorithms = algorithms
        self._clock = clock
        self._keys = _no_keys(algorithms)
        self._fetched = self._tried = -inf
        self._fetching = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        # Who comes while another one refreshes an old set goes on with it.
        if self._clock() - self._fetched >= REFRESH_SECONDS and not self._fetching.locked():
            await self._refresh()
        if (found := self._keys.find(kid, algorithm)) is None:
            await self._refresh()
            found = self._keys.find(kid, algorithm)
        return found

    async def _refresh(self) -> None:
        async with self._fetching:
            if self._clock() - self._tried < RETRY_SECONDS:
                return
            self._tried = self._clock()
            try:
                self._keys = KeySet(await self._fetch(), self._algorithms)
                self._fetched = self._clock()
            except (aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
                _keep(error)


class FileKeys:
    """The keys of a file, read again when it has changed."""

    def __init__(self, path: str, algorithms: Sequence[str], clock: Callable[[], float]) -> None:
        self._path = Path(path)
        self._algorithms = algorithms
        self._clock = clock
        self._keys = _no_keys(algorithms)
        self._stamp: Stamp | None = (0, 0, 0)
        self._next = -inf

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if self._clock() >= self._next:
            self._next = self._clock() + LOOK_SECONDS
            self._look()
        return self._keys.find(kid, algorithm)

    def _look(self) -> None:
        """A file that is missing or broken is told once, not at each look."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # taken before reading: what is written meanwhile shows at the next look
        try:
            self._keys = KeySet(_content(self._path), self._algorithms)
        except (OSError, ValueError) as error:
            _keep(error)


def fetch_from(url: str) -> Fetch:
    """Gets the document: 200, within the time, no larger than allowed, from that address and no other."""

    async def fetch() -> bytes:
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            session.get(url, allow_redirects=False, headers=headers) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"it was answered with {answer.status}")
            return await _bounded(answer.content)

    return fetch


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """At most one byte too many: enough to tell that it is too large."""
    document = bytearray()
    async for part in content.iter_chunked(65536):
        document += part
        if len(document) > MAX_BYTES:
            break
    return bytes(document)


def _no_keys(algorithms: Sequence[str]) -> KeySet:
    return KeySet(b'{"keys": []}', algorithms)


def _members(document: bytes) -> list[dict[str, Any]]:
    try:
        read = json.loads(document)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    keys = read.get("keys") if isinstance(read, dict) else None
    if not isinstance(keys, list):
        raise ValueError("it is no object with a list of keys")  # noqa: TRY004 - what was read, not a type
    return [key for key in keys if isinstance(key, dict)]


def _usable(key: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    """The key for this algorithm, if it is a public one that verifies and is not meant for another."""
    if key.get("kty") == "oct" or key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return None
    try:
        usable = jwt.PyJWK({name: key[name] for name in _PUBLIC if name in key}, algorithm)
        usable.Algorithm.prepare_key(usable.key)  # a curve is one algorithm's alone, which shows only here
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return usable


def _content(path: Path) -> bytes:
    """At most one byte too many, of a regular file: opening a FIFO would wait for someone who writes."""
    if not S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _keep(error: Exception) -> None:
    """The kind of a network error only: its text may have the whole address, with what is secret in it."""
    told = str(error) if type(error) is ValueError else type(error).__name__
    _log.warning("the keys for tokens cannot be read; the last good ones stay", extra={"error": told})
