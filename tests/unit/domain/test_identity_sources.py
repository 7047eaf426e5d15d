"""Where identifiers are read from: addresses, cookies and claims, as proxies and hostile callers write."""

import base64
import hashlib
import json
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain.address import address_identity, canonical_address
from sidecar.domain.identity import IdentifierReader, IdentityOptions, cookie_value
from sidecar.domain.request import RequestMetadata

tried = settings(deadline=None, max_examples=500)


SPELLINGS = [
    ("192.0.2.1", "192.0.2.1"),
    (" 192.0.2.1 ", "192.0.2.1"),
    ("192.0.2.1:80", "192.0.2.1"),
    ('"192.0.2.1:80"', "192.0.2.1"),
    ("[192.0.2.1]:80", "192.0.2.1"),
    ("::ffff:192.0.2.1", "192.0.2.1"),
    ("::FFFF:c000:201", "192.0.2.1"),
    ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
    ("2001:DB8:0:0::1", "2001:db8::1"),
    ("[2001:db8::1]", "2001:db8::1"),
    ("[2001:db8::1]:4711", "2001:db8::1"),
    ('"[2001:db8::1]:4711"', "2001:db8::1"),
    ("fe80::1%eth0", "fe80::1"),
    ("[fe80::1%25eth0]:80", "fe80::1"),
]


@pytest.mark.parametrize(("text", "address"), SPELLINGS)
def test_an_address_is_read_in_every_spelling(text: str, address: str) -> None:
    """Ports, brackets, quotes, zones, upper case, IPv4 in IPv6."""
    assert canonical_address(text) == ip_address(address)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unknown",
        "_hidden",
        "-",
        "192.0.2",
        "192.0.2.256",
        "010.0.0.1",
        "1.2.3.4, 5.6.7.8",
        "::1:",
        "[",
        ":80",
        "１.2.3.4",
        "192.0.2.1:80:90",
        "192.0.2.1:evil",
        "[2001:db8::1]junk",
        "[2001:db8::1]:evil",
        "192.0.2.1/24",
        "\ud800",
        "1" * 60_000,
        ":" * 200,
    ],
)
def test_what_is_no_address_is_unreadable(text: str) -> None:
    """Never guessed at."""
    assert canonical_address(text) is None


@given(st.ip_addresses())
@tried
def test_an_address_survives_being_written(address: IPv4Address | IPv6Address) -> None:
    """Bare, in brackets and with a port, it is the same address, counted as one."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    for text in (str(address), f"[{address}]", f"[{address}]:8080"):
        assert canonical_address(text) == (mapped or address)


def test_ipv6_is_counted_by_network() -> None:
    """Who has a /64 has 2^64 addresses; the neighbour's network is another caller."""
    one, same, other = (IPv6Address(f"2001:db8:0:{tail}") for tail in ("1::1", "1:ffff::", "2::1"))
    assert address_identity(one, 64) == address_identity(same, 64) == "2001:db8:0:1::/64"
    assert address_identity(other, 64) != address_identity(one, 64)
    assert address_identity(one, 128) != address_identity(same, 128)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("sid=1", "1"),
        ("a=0;sid=1;sid=2", "1"),
        (" a=0 ;  sid = 1 ", "1"),
        ('sid="1"', "1"),
        ("sid=a=b==", "a=b=="),
        ("xsid=0; sid", None),
        ("SID=1", None),
        ("sid=", None),
        ('sid=""', None),
        ("", None),
        ("=1; ;;", None),
    ],
)
def test_a_cookie_is_found_by_its_exact_name(header: str, value: str | None) -> None:
    """The first of that name, without quotes; an empty one is absent."""
    assert cookie_value(header, "sid") == value


def payload(claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def claim_of(text: str) -> str | None:
    """The identifier that a payload header leads to."""
    reader = IdentifierReader("jwt_claim:sub", {}, IdentityOptions())
    request = RequestMetadata(method="GET", target="/", headers={"x-jwt-payload": text})
    values = reader.values(request, "/")
    return None if values is None else reader.identifier(values)


@pytest.mark.parametrize(
    ("claim", "identifier"),
    [
        ("ann", "=ann"),
        (7, "=7"),
        (1.5, "=1.5"),
        (True, "=true"),
        (0, "=0"),
        ("", None),
        (None, None),
        (["a"], None),
        ({"a": 1}, None),
        ("a:b", "#" + sha256("a:b")),
        ("\ud800", "#" + hashlib.sha256(b"\xed\xa0\x80").hexdigest()),
        (10**400, "#" + sha256("1" + "0" * 400)),
    ],
)
def test_a_scalar_claim_identifies(claim: object, identifier: str | None) -> None:
    """Lists and objects do not; what is long or unprintable is hashed like any value."""
    assert claim_of(payload({"sub": claim})) == identifier


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "é",
        "\udcff",
        "!!!!",
        "e30.e30.sig",
        payload([]),
        payload("sub"),
        payload({"other": 1}),
        base64.urlsafe_b64encode(b"\xff\xfe{").decode(),
        base64.urlsafe_b64encode(b'{"sub":').decode(),
        base64.urlsafe_b64encode(b'{"sub":' + b"[" * 40_000).decode(),
        base64.urlsafe_b64encode(b'{"sub":' + b"9" * 40_000 + b"}").decode(),
        "A" * 60_000,
    ],
)
def test_a_hostile_payload_has_no_claim(text: str) -> None:
    """It is missing, whatever it is made of; nothing is raised."""
    assert claim_of(text) is None


@given(
    st.text(st.characters(), max_size=40) | st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode())
)
@tried
def test_no_payload_raises(text: str) -> None:
    """Any text at all may stand in the header."""
    identifier = claim_of(text)
    assert identifier is None or identifier[0] in "=#"


def test_padding_and_the_payload_header_are_as_configured() -> None:
    """Filters differ in whether they pad base64url."""
    options = IdentityOptions(jwt_payload_header="x-claims")
    reader = IdentifierReader("jwt_claim:sub", {}, options)
    for claims in ({"sub": "a"}, {"sub": "ab"}, {"sub": "abc"}):
        for text in (payload(claims), payload(claims) + "=" * (-len(payload(claims)) % 4)):
            request = RequestMetadata(method="GET", target="/", headers={"x-claims": text})
            assert reader.values(request, "/") == (claims["sub"],)
