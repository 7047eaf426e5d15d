"""What a dialect reads and writes, whatever HTTP front it stands behind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Lower-case names; repeated headers joined in order (RFC 9110 5.3), cookies as in RFC 6265 5.4."""
    result: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.lower()
        if name in result:
            separator = "; " if name == "cookie" else ","
            result[name] = result[name] + separator + value
        else:
            result[name] = value
    return result
