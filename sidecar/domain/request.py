"""The proxy-neutral view of one request.

A dialect fills it from what its proxy really sends; nothing after the dialect knows which proxy asked.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from sidecar.domain.values import per_request

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@per_request()
class RequestMetadata:
    """What the rules may look at. An absent value and an empty one are the same: `None`."""

    method: str
    #: The request target as the caller sent it: not decoded, query included.
    target: str
    #: Without port or final dot, lower case; empty when unknown.
    host: str = ""
    #: The client pinned in the proxy's configuration or named by it; `None` finds it by host.
    client_id: str | None = None
    #: The caller, never the proxy; `None` when it could not be read.
    address: Address | None = None
    #: False where nobody is expected to say the address; the identifier is missing then, not unreadable.
    has_address: bool = True
    session_id: str | None = None
    user_id: str | None = None
    user_agent: str | None = None
    #: Lower-case names; repeated headers joined as HTTP joins them.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Multiplies the cost of each rule; 0 looks without charging.
    cost: int = 1
    #: What logs call this request; not looked at by rules.
    request_id: str = ""

    @property
    def is_preflight(self) -> bool:
        """Whether a browser asks what it may send (Fetch standard, CORS-preflight request)."""
        if self.method != "OPTIONS":
            return False
        return bool(self.headers.get("origin") and self.headers.get("access-control-request-method"))


def canonical_host(host: str) -> str:
    """Lower case, without user, port and final dot: the form in which hosts are compared."""
    return _known_host(host) if len(host) <= _SHORT else _canonical_host(host)


def _canonical_host(host: str) -> str:
    host = host.strip().lower().rpartition("@")[2]
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    name, _, port = host.rpartition(":")
    if name and (port.isdigit() or not port):
        host = name
    return host.removesuffix(".")


# The same few again and again; a hostile one may be 60 kB, and is not kept.
_SHORT = 255
_known_host = lru_cache(maxsize=4096)(_canonical_host)
