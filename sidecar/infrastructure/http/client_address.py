"""The caller's address, as a proxy hands it over.

Who asks was checked before (`access.py`): what stands here was written by a proxy that is trusted. Only what
callers wrote in front of it is not, so X-Forwarded-For is read from the right.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.domain.address import canonical_address
from sidecar.domain.request import Address, Network

#: No chain of proxies is longer; callers may send any number of entries.
MAX_HOPS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSource:
    """Where one dialect finds the address; `None` from `read` is one that could not be read.

    What the header that counts does not say is unknown: falling back to another one would let a caller choose
    which is believed.
    """

    #: Lower case. Written by the proxy, with the address alone; without one, X-Forwarded-For is read.
    header: str | None = "x-client-ip"
    #: Which entry of X-Forwarded-For is the caller's; 1 is the rightmost.
    trusted_hops: int = 1
    #: Instead of counting hops: the rightmost entry that is in none of these.
    trusted_networks: tuple[Network, ...] = ()

    def read(self, headers: Mapping[str, str]) -> Address | None:
        if self.header:
            return canonical_address(headers.get(self.header, ""))
        forwarded = headers.get("x-forwarded-for", "")
        if self.trusted_networks:
            return self._first_untrusted(forwarded)
        hops = forwarded.rsplit(",", self.trusted_hops)
        # Split once too often: what is left of the trusted hops was written by whoever wanted to.
        trusted = hops[-self.trusted_hops :]
        return canonical_address(trusted[0]) if len(trusted) == self.trusted_hops else None

    def _first_untrusted(self, forwarded: str) -> Address | None:
        """Where all are trusted, the leftmost: one of our own asks."""
        entries = forwarded.rsplit(",", MAX_HOPS)
        for entry in reversed(entries[-MAX_HOPS:]):
            address = canonical_address(entry)
            if address is None or not any(address in network for network in self.trusted_networks):
                return address
        return address if len(entries) <= MAX_HOPS else None
