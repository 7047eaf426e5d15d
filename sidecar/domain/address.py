"""Addresses in one form, however proxies and people write them, and the text under which they are counted."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from sidecar.domain.request import Address, Network

UNREADABLE_ADDRESS = "?"
_MAX_LENGTH = 128
_WITH_PORT = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d{1,5})?")


class KnownIPv4(IPv4Address):
    """With its text: to look that up for each request would cost more than reading the address."""

    __slots__ = ("text",)

    def __init__(self, address: str | int) -> None:
        super().__init__(address)
        self.text = str(self)


def canonical_network(written: str) -> Network:
    """An address or CIDR network, IPv4-mapped ones as IPv4; raises `ValueError`."""
    network = ip_network(written)
    if network.version == 6 and network.prefixlen >= 96 and (mapped := network.network_address.ipv4_mapped):
        return IPv4Network((mapped, network.prefixlen - 96))
    return network


def canonical_address(text: str) -> Address | None:
    """An address as proxies write it (port, brackets, zone, IPv4-mapped) in one form, or `None`."""
    return _address(text) if len(text) <= _MAX_LENGTH else None


@lru_cache(maxsize=8192)
def _address(text: str) -> Address | None:
    """Remembered, since callers come again and again."""
    text = text.strip().strip('"')
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2]
    text = text.partition("%")[0]
    try:
        # Not ip_address(): its error message is built from both failures, and this is on the hot path.
        if ":" not in text:
            return KnownIPv4(text)
        address = IPv6Address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped
    return KnownIPv4(int(mapped)) if mapped else address


def address_identity(address: Address | None, ipv6_prefix: int) -> str:
    """The text under which an address is counted: IPv4 whole, IPv6 by network, unreadable ones together."""
    return address.text if isinstance(address, KnownIPv4) else _address_identity(address, ipv6_prefix)


@lru_cache(maxsize=8192)
def _address_identity(address: Address | None, ipv6_prefix: int) -> str:
    if address is None:
        return UNREADABLE_ADDRESS
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((address, ipv6_prefix), strict=False))
