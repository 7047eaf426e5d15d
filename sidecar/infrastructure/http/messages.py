"""What a dialect reads and writes, whatever HTTP front it stands behind."""

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from multidict import CIMultiDict, MultiMapping

from sidecar.domain.values import per_request

_ORIGIN = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


class Headers(Mapping[str, str]):
    """The headers of a request by their lower-case names, looked up where the parser has put them.

    Of many headers few are asked for. Repeated ones are joined in order (RFC 9110 5.3), cookies as in
    RFC 6265 5.4.
    """

    __slots__ = ("_sent",)

    def __init__(self, sent: MultiMapping[str]) -> None:
        """What was `sent`, its names compared without case."""
        self._sent = sent

    def get(self, name: str, default: Any = None) -> Any:
        values = self._sent.getall(name, None)
        if values is None:
            return default
        return values[0] if len(values) == 1 else ("; " if name == "cookie" else ",").join(values)

    def without(self, name: str) -> "Headers":
        left = CIMultiDict(self._sent)
        left.popall(name, None)
        return Headers(left)

    def __getitem__(self, name: str) -> str:
        found: str | None = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(map(str.lower, self._sent)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(slots=True)
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
class Incoming(Call):
    """One as it comes from a connection, its target as it was sent; what stands above is for the front to
    find out.
    """

    headers: Headers
    #: Empty for the peer of a Unix socket, `None` for one that has gone.
    peer: str | None = None
    #: The body, still to be read, or thrown away.
    stream: Any = None
    keep_alive: bool = False
    #: HTTP/1.0.
    old: bool = False
    #: Tells a caller that waits for it to send the body.
    proceed: Callable[[], None] | None = None
    answered: bool = False


@per_request()
class Answer:
    """`lines` are its headers as they are written, each with its line end; `of` makes them."""

    status: int
    lines: str = ""
    body: bytes = b""

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], body: bytes = b"") -> "Answer":
        """Raises `ValueError` where a header is none."""
        return cls(status, "".join([line(name, value) for name, value in headers.items()]), body)

    @property
    def headers(self) -> dict[str, str]:
        """For those who look at it; it goes out as it is."""
        return dict(one.split(": ", 1) for one in self.lines.split("\r\n")[:-1])


def line(name: str, value: str) -> str:
    """A header as it is written. Raises `ValueError` where there is a line end in it: what stands behind
    that would be another header, or another answer.
    """
    written = f"{name}: {value}"
    if "\r" in written or "\n" in written:
        raise ValueError("a line end in a header")
    return written + "\r\n"


Respond = Callable[[Answer], None]


class Handler(Protocol):
    """Answers calls: at once or later through `respond`, or by what is returned for it to be awaited."""

    @property
    def serving(self) -> bool: ...

    def start(self, call: Incoming, respond: Respond) -> Coroutine[Any, Any, Answer] | None: ...


JSON_LINE = line("Content-Type", "application/json")


def origin_form(target: str) -> str:
    """A target without the scheme and host that callers may put before it (RFC 9112 3.2.2)."""
    path, written = _ORIGIN.subn("", target, count=1)
    return path or "/" if written else target
