"""What a dialect reads and writes, whatever HTTP front it stands behind."""

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidecar.domain.values import per_request

_ORIGIN = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@per_request()
class Call:
    """One request to the data port.

    `target` is as it came, without the dialect's own path; `headers` have lower-case names, repeated ones
    joined; `client_id` is the client pinned in the path.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    client_id: str | None = None
    request_id: str = ""
    body: bytes = b""


@dataclass(slots=True)
class Incoming:
    """One request as it comes from a connection: `body` is still to be read, or thrown away."""

    method: str
    #: As it was sent, scheme and host of an absolute form included.
    target: str
    header_items: Iterable[tuple[str, str]]
    #: Empty for the peer of a Unix socket, `None` for one that has gone.
    peer: str | None
    body: Any
    keep_alive: bool
    #: HTTP/1.0.
    old: bool
    request_id: str = ""
    #: Tells a caller that waits for it to send the body.
    proceed: Callable[[], None] = lambda: None
    answered: bool = False


@per_request()
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Respond = Callable[[Answer], None]


class Handler(Protocol):
    """Answers calls: at once or later through `respond`, or by what is returned for it to be awaited."""

    @property
    def serving(self) -> bool: ...

    def start(self, call: Incoming, respond: Respond) -> Coroutine[Any, Any, Answer] | None: ...


def joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Lower-case names; repeated headers joined in order (RFC 9110 5.3), cookies as in RFC 6265 5.4."""
    result: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for raw_name, value in headers:
        name = raw_name.lower()
        if name in result:
            repeated.setdefault(name, [result[name]]).append(value)
        else:
            result[name] = value
    # At the end, once: a header may come hundreds of times, and be long.
    for name, values in repeated.items():
        result[name] = ("; " if name == "cookie" else ",").join(values)
    return result


def origin_form(target: str) -> str:
    """A target without the scheme and host that callers may put before it (RFC 9112 3.2.2)."""
    path, written = _ORIGIN.subn("", target, count=1)
    return path or "/" if written else target
