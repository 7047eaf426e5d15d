"""Who may ask on the data port: a reachable check port would let anyone use up other callers' limits."""

import hmac
from asyncio import BaseTransport
from dataclasses import dataclass, field

from sidecar.domain.address import canonical_address, canonical_network
from sidecar.domain.request import Network
from sidecar.infrastructure.http.messages import Headers

#: Peers whose answer is remembered; there are no more proxies, and who is none is refused.
_MAX_KNOWN = 1024


def networks(*written: str) -> tuple[Network, ...]:
    return tuple(map(canonical_network, written))


LOOPBACK = networks("127.0.0.0/8", "::1/128")
#: RFC 1918, RFC 4193, and the link-local ones of RFC 3927 and RFC 4291.
PRIVATE = networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Checks one request to the data port before anything else of it is read: `admits`, `without_secret`."""

    trusted_peers: tuple[Network, ...] = LOOPBACK + PRIVATE
    #: Lower case.
    secret_header: str = "x-sidecar-secret"  # noqa: S105 the name, not the secret
    #: Any of them will do, so that one can be replaced; none: nobody is asked for one.
    secrets: tuple[bytes, ...] = ()
    _known: dict[str | None, bool] = field(default_factory=dict, compare=False)

    def admits(self, peer: str | None) -> bool:
        """`peer` is a TCP address, empty for any of a Unix socket, `None` when the connection is gone."""
        known = self._known.get(peer)
        return self._trusts(peer) if known is None else known

    def without_secret(self, headers: Headers) -> Headers | None:
        """The headers without the secret, for which nothing else has a use; `None` where it is not there."""
        if not self.secrets:
            return headers
        known = self._knows(headers.get(self.secret_header, ""))
        return headers.without(self.secret_header) if known else None

    def _trusts(self, peer: str | None) -> bool:
        trusted = peer == ""
        if peer:
            address = canonical_address(peer)
            trusted = address is not None and any(address in network for network in self.trusted_peers)
        if len(self._known) < _MAX_KNOWN:
            self._known[peer] = trusted
        return trusted

    def _knows(self, given: str) -> bool:
        """All are compared, so that the time says nothing about which was nearly right."""
        offered = given.encode("utf-8", "surrogateescape")
        return sum(hmac.compare_digest(offered, secret) for secret in self.secrets) > 0


def peer_of(transport: BaseTransport) -> str | None:
    """The address of who asks; empty on a Unix socket, whose peers have none that says anything."""
    if isinstance(transport.get_extra_info("sockname"), str | bytes):
        return ""
    peer = transport.get_extra_info("peername")
    return peer[0] if peer else None
