"""The caller's address from what proxies write: never what callers wrote in front of it."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from sidecar.domain.address import canonical_address
from sidecar.infrastructure.http.access import networks
from sidecar.infrastructure.http.client_address import MAX_HOPS, AddressSource
from sidecar.infrastructure.http.messages import Headers

OURS = networks("10.0.0.0/8", "fd00::/8")
BY_NETWORK = AddressSource(header=None, trusted_networks=OURS)


def forwarded(source: AddressSource, value: str) -> str | None:
    address = source.read({"x-forwarded-for": value})
    return str(address) if address else None


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("9.9.9.9, 192.0.2.1", "192.0.2.1"),
        ("9.9.9.9, 192.0.2.1, 10.0.0.1", "192.0.2.1"),
        ("9.9.9.9,192.0.2.1,10.0.0.1,10.0.0.2:80", "192.0.2.1"),
        ("192.0.2.1, ::ffff:10.0.0.1", "192.0.2.1"),
        ("192.0.2.1, [fd00::1]:443, fd00::2%eth0", "192.0.2.1"),
        ("2001:db8::1, 10.0.0.1", "2001:db8::1"),
        ("::ffff:192.0.2.1, 10.0.0.1", "192.0.2.1"),
        # All are ours: one of ours asks.
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.3, 10.0.0.2, 10.0.0.1", "10.0.0.3"),
        # What cannot be read ends the walk: what stands left of it may be anybody's.
        ("9.9.9.9, unknown, 10.0.0.1", None),
        ("9.9.9.9, , 10.0.0.1", None),
        ("9.9.9.9,", None),
        ("9.9.9.9, _hidden", None),
        ("9.9.9.9 10.0.0.1", None),
        ("for=192.0.2.1", None),
        ("", None),
        (",", None),
        (",".join(["10.0.0.1"] * MAX_HOPS), "10.0.0.1"),
        ("192.0.2.1," + ",".join(["10.0.0.1"] * (MAX_HOPS - 1)), "192.0.2.1"),
        # Longer than any chain of proxies.
        ("192.0.2.1," + ",".join(["10.0.0.1"] * MAX_HOPS), None),
    ],
)
def test_by_networks_the_caller_is_the_rightmost_that_is_not_ours(value: str, address: str | None) -> None:
    """However many proxies of ours it came through."""
    assert forwarded(BY_NETWORK, value) == address


@pytest.mark.parametrize("source", [BY_NETWORK, AddressSource(header=None), AddressSource()])
def test_other_headers_that_may_name_a_caller_are_not_read(source: AddressSource) -> None:
    """One source of truth: what proxies do not overwrite, callers write."""
    names = ("forwarded", "x-real-ip", "x-envoy-external-address", "x_forwarded_for", "true-client-ip")
    assert source.read(dict.fromkeys(names, "192.0.2.1") | {"forwarded": "for=192.0.2.1"}) is None


@pytest.mark.parametrize("source", [BY_NETWORK, AddressSource(header=None, trusted_hops=2)])
def test_several_lines_are_one_list_in_their_order(source: AddressSource) -> None:
    """A line of the caller's own does not push the proxies' entries away."""
    lines = [
        ("X-Forwarded-For", "9.9.9.9"),
        ("x-forwarded-for", "192.0.2.1"),
        ("X-Forwarded-For", "10.0.0.1"),
    ]
    assert str(source.read(Headers(CIMultiDict(lines)))) == "192.0.2.1"


WRITTEN = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map("[{}]:443".format),
    st.ip_addresses(v=4).map("{}:80".format),
    st.ip_addresses(v=4).map("::ffff:{}".format),
    st.sampled_from(["", " ", "unknown", "_x", "10.0.0.1", "fd00::1%eth0", '"', "\udcff", "1" * 200]),
    st.text(max_size=20),
)
SOURCES = st.one_of(
    st.just(AddressSource()),
    st.integers(1, MAX_HOPS).map(lambda hops: AddressSource(header=None, trusted_hops=hops)),
    st.just(BY_NETWORK),
)


@given(SOURCES, st.text(max_size=300) | st.lists(WRITTEN, max_size=40).map(",".join))
@example(BY_NETWORK, "," * 131_072)
@example(AddressSource(header=None, trusted_hops=MAX_HOPS), "10.0.0.1," * 14_563)
@example(BY_NETWORK, "9" * 131_072)
def test_whatever_is_written_is_an_address_or_none(source: AddressSource, text: str) -> None:
    """Never an exception, never an IPv4-mapped one or one with a zone."""
    address = source.read({"x-client-ip": text, "x-forwarded-for": text})
    assert address is None or isinstance(address, IPv4Address | IPv6Address)
    if isinstance(address, IPv6Address):
        assert address.ipv4_mapped is None
        assert address.scope_id is None


@given(st.integers(1, 4), st.lists(st.text(max_size=30), max_size=6), st.data())
def test_what_callers_write_is_never_believed(hops: int, forged: list[str], data: st.DataObject) -> None:
    """Whatever stands in front of the entries that our proxies added, the answer is the same."""
    caller = data.draw(st.ip_addresses(v=4, network="192.0.2.0/24"))
    proxies = [f"10.0.0.{number}" for number in range(1, hops)]
    ours = [str(caller), *proxies]
    sent = ", ".join([*forged, *ours])
    assert forwarded(AddressSource(header=None, trusted_hops=hops), sent) == str(caller)
    assert forwarded(BY_NETWORK, sent) == str(caller)


@given(st.lists(st.text(max_size=30), max_size=6), st.sampled_from(["", "unknown", "nonsense", "1.2.3"]))
def test_nothing_forged_stands_in_for_what_our_proxy_could_not_say(forged: list[str], told: str) -> None:
    """Falling back further to the left would let callers choose."""
    sent = ",".join([*forged, told])
    assert forwarded(AddressSource(header=None), sent) is None
    assert forwarded(BY_NETWORK, sent) is None


def test_of_a_long_list_only_the_right_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a caller sends: 128 kB cost as many addresses as there may be hops."""
    read: list[str] = []

    def counted(text: str) -> IPv4Address | IPv6Address | None:
        read.append(text)
        return canonical_address(text)

    monkeypatch.setattr("sidecar.infrastructure.http.client_address.canonical_address", counted)
    assert forwarded(BY_NETWORK, "10.0.0.1," * 14_563 + "10.0.0.1") is None
    assert len(read) <= MAX_HOPS
    read.clear()
    hops = AddressSource(header=None, trusted_hops=3)
    assert forwarded(hops, "9.9.9.9," * 16_000 + "192.0.2.1,10.0.0.1,10.0.0.2") == "192.0.2.1"
    assert read == ["192.0.2.1"]


def test_an_address_header_has_one_address() -> None:
    """Two are none: the proxy did not overwrite what came."""
    source = AddressSource(header="x-real-ip")
    assert source.read({"x-real-ip": "192.0.2.1"}) == ip_address("192.0.2.1")
    assert source.read({"x-real-ip": "9.9.9.9,192.0.2.1"}) is None
    assert source.read({"x-client-ip": "192.0.2.1", "x-forwarded-for": "192.0.2.1"}) is None
