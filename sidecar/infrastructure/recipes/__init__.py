"""Proxy configurations that work with a sidecar's own: one folder of templates for each proxy.

What stands in `deploy/` is what these templates give with the defaults; a test holds the two together.
Templates put values into text as they are, so `Recipe` refuses those that would mean something to a proxy;
a secret may hold anything, and `abilities.check` says which ones no template can write.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import PurePath
from typing import ClassVar

from jinja2 import Environment, StrictUndefined

from sidecar.domain.rule import ID_PATTERN

#: Stands where the secret belongs, until somebody writes it there.
PLACEHOLDER = "WRITE-THE-SECRET-OF-listen.secret-HERE"
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SOCKET = re.compile(r"unix:(/[A-Za-z0-9._/-]+)")
_HEADER = re.compile(r"[a-z0-9._-]{1,128}")
_MOST_PORT = 65535
_MARGIN_MS = 200
_COMMENTS = {".lua": "--", ".js": "//", ".json": "//"}


class CannotRender(ValueError):
    """A value that a proxy's configuration cannot hold; the text is for the person who gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a template may say. Raises `CannotRender`."""

    #: Where the proxy listens, and the application and the sidecar behind it: `host:port`, or `unix:/path`
    #: of the sidecar where the proxy can ask there. The filters `host`, `port` and `socket` take them apart.
    listen: str = "127.0.0.1:10000"
    app: str = "127.0.0.1:8080"
    sidecar: str = "127.0.0.1:8000"
    #: The client that is pinned in the path; else it is found by host.
    client: str | None = None
    #: Whether requests pass while the sidecar is gone; else they get `unavailable_status`.
    fail_open: bool = True
    unavailable_status: int = 503
    #: How long the proxy waits for an answer: longer than the sidecar for its store (`patience_ms`).
    timeout_ms: int = 250
    #: The header that has the address alone; without one it is in X-Forwarded-For.
    address_header: str | None = "x-client-ip"
    #: Name and value of the header that tells the sidecar that it is the proxy who asks.
    secret_header: str | None = None
    secret: str | None = None
    #: What the sidecar reads of the client's own headers, lower case.
    passed_headers: tuple[str, ...] = ("x-request-id", "x-session-id", "cookie", "user-agent", "x-api-key")
    #: What it reads too, and what a caller must not be able to write: set by the proxy or removed.
    forgeable_headers: tuple[str, ...] = ("x-user-id", "x-jwt-payload")
    #: Whether answers carry RateLimit and RateLimit-Policy, and X-Envoy-RateLimited.
    ietf_headers: bool = False
    envoy_ratelimited: bool = False
    #: What the answer to an allowed request can say, and what it says in the IETF's words.
    NUMBERS: ClassVar[tuple[str, ...]] = (
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "X-RateLimit-Degraded",
    )
    IETF: ClassVar[tuple[str, ...]] = ("RateLimit", "RateLimit-Policy")

    def __post_init__(self) -> None:
        for address in (self.listen, self.app):
            _check(_HOST_PORT, address, "an address is host:port")
        if not _SOCKET.fullmatch(self.sidecar):
            _check(_HOST_PORT, self.sidecar, "the sidecar's address is host:port or unix:/path")
        own = (self.address_header, self.secret_header)
        for name in filter(None, (*self.passed_headers, *self.forgeable_headers, *own)):
            _check(_HEADER, name, "the names of headers have letters, digits, '-', '_' and '.' here")
        if self.client is not None:
            _check(ID_PATTERN, self.client, "a client's id has 1 to 64 letters, digits, '.', '_' and '-'")

    @property
    def pin(self) -> str:
        """What stands before the dialect's path."""
        return f"/clients/{self.client}" if self.client else ""

    @property
    def numbers(self) -> tuple[str, ...]:
        """The headers of an allowed request that are for the client, and for nobody else."""
        return self.NUMBERS + (self.IETF if self.ietf_headers else ())

    @property
    def own_port(self) -> int:
        """For a proxy that has to ask itself first: the next one that nobody else is said to have."""
        taken = {_port(address) for address in (self.app, self.sidecar) if _HOST_PORT.fullmatch(address)}
        first = _port(self.listen)
        after = chain(range(first + 1, _MOST_PORT + 1), range(first - 1, 0, -1))
        return next(port for port in after if port not in taken)


def patience_ms(store_timeout_ms: int) -> int:
    """What a proxy should wait: a sidecar that waits that long for its store has to answer after it."""
    return store_timeout_ms + _MARGIN_MS


def proxies() -> list[str]:
    """The names of all proxies that there is a recipe for."""
    if not _templates().is_dir():
        return []
    return sorted(entry.name for entry in _templates().iterdir() if _is_recipe(entry))


def render(proxy: str, recipe: Recipe) -> dict[str, str]:
    """File name → text of all files of a proxy's recipe."""
    environment = _environment()
    return {
        entry.name: environment.from_string(entry.read_text("utf-8")).render(recipe=recipe)
        for entry in sorted(_files_of(_templates().joinpath(proxy)), key=lambda entry: entry.name)
    }


def together(rendered: dict[str, str]) -> str:
    """All files as one text; where there are several, each after a comment with its name."""
    if len(rendered) == 1:
        return next(iter(rendered.values()))
    return "\n".join(f"{_comment(name)} ---- {name}\n{text}" for name, text in rendered.items())


def _comment(name: str) -> str:
    return _COMMENTS.get(PurePath(name).suffix, "#")


def _environment() -> Environment:
    # What comes out is no HTML.
    environment = Environment(  # noqa: S701
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"host": _host, "port": _port, "socket": _socket}
    return environment


def _host(address: str) -> str:
    """Without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _socket(address: str) -> str | None:
    """The path of a Unix socket."""
    found = _SOCKET.fullmatch(address)
    return found[1] if found else None


def _check(pattern: re.Pattern[str], text: str, expected: str) -> None:
    if not pattern.fullmatch(text):
        raise CannotRender(f"{expected}, got {text!r}")


def _is_recipe(entry: Traversable) -> bool:
    return entry.is_dir() and any(_files_of(entry))


def _files_of(folder: Traversable) -> Iterator[Traversable]:
    return (entry for entry in folder.iterdir() if entry.is_file())


def _templates() -> Traversable:
    return files(__name__).joinpath("templates")
