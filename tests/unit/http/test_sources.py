"""Where callers are found in a request: the address, the session, the user, the client."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

import pytest
from multidict import CIMultiDict

from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.client_address import AddressSource
from sidecar.infrastructure.http.messages import Call, Headers
from sidecar.infrastructure.http.sources import Sources

FORWARDED: dict[str, Any] = {"address": AddressSource(header=None)}


def sent_as(sent: list[tuple[str, str]]) -> Headers:
    return Headers(CIMultiDict(sent))


def read(headers: Mapping[str, str], *, client_id: str | None = None, **sources: Any) -> RequestMetadata:
    return Sources(**sources).request(Call("GET", "/", headers, client_id), "GET", "/", "h")


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        (" 192.0.2.1\t", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ('"192.0.2.1:4711"', "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ('"[2001:db8::1]:4711"', "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:80", "fe80::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ("", None),
        ("unknown", None),
        ("_hidden", None),
        ("192.0.2.256", None),
        ("192.0.2.1, 192.0.2.2", None),
        ("192.0.2.1,192.0.2.2", None),
        ("192.0.2", None),
        ("0x7f.1", None),
        ("/run/envoy.sock", None),
        ("1" * 10_000, None),
        ("192.0.2.1\x00", None),
        ("\xff\xfe", None),
    ],
)
def test_an_address_is_read_however_a_proxy_writes_it(written: str, address: str | None) -> None:
    """Port, brackets, zone, quotes and mapping do not make another caller; what is no address is unknown."""
    expected = ip_address(address) if address else None
    assert read({"x-client-ip": written}).address == expected
    # A comma separates entries there, so that the last of several is one address.
    if "," not in written:
        assert read({"x-forwarded-for": written}, **FORWARDED).address == expected


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-forwarded-for": "192.0.2.1"},
        {"x-client-ip": "", "x-forwarded-for": "192.0.2.1"},
        {"x-client-ip": "nonsense", "x-forwarded-for": "192.0.2.1", "x-real-ip": "192.0.2.2"},
    ],
)
def test_a_configured_header_is_believed_alone(headers: dict[str, str]) -> None:
    """Falling back to another header would let callers choose which one counts."""
    assert read(headers).address is None


@pytest.mark.parametrize(
    ("hops", "forwarded", "address"),
    [
        (1, "192.0.2.1", "192.0.2.1"),
        (1, "9.9.9.9, 192.0.2.1", "192.0.2.1"),
        (1, "9.9.9.9,8.8.8.8,192.0.2.1", "192.0.2.1"),
        (2, "9.9.9.9, 192.0.2.1, 10.0.0.1", "192.0.2.1"),
        (2, "192.0.2.1, 10.0.0.1", "192.0.2.1"),
        (2, "192.0.2.1", None),
        (3, "192.0.2.1, 10.0.0.1", None),
        (2, "", None),
        (1, "", None),
        (1, "9.9.9.9, ", None),
        (1, "9.9.9.9, unknown", None),
        (2, "unknown, 10.0.0.1", None),
        (2, ", 10.0.0.1", None),
        (1, "garbage\x00;, 192.0.2.1", "192.0.2.1"),
        (1, ",".join(["9.9.9.9"] * 5000) + ",192.0.2.1", "192.0.2.1"),
        (2, "9.9.9.9, [2001:db8::1]:80, 10.0.0.1:80", "2001:db8::1"),
    ],
)
def test_hops_are_counted_from_the_right(hops: int, forwarded: str, address: str | None) -> None:
    """What stands left of the trusted hops was written by whoever wanted to; too few entries are none."""
    found = read(
        {"x-forwarded-for": forwarded}, address=AddressSource(header=None, trusted_hops=hops)
    ).address
    assert found == (ip_address(address) if address else None)


def test_an_address_header_is_ignored_where_none_is_configured() -> None:
    """The default name is no back door."""
    headers = {"x-client-ip": "9.9.9.9", "x-forwarded-for": "192.0.2.1"}
    assert read(headers, **FORWARDED).address == ip_address("192.0.2.1")


def test_several_forwarded_headers_are_one_list() -> None:
    """A caller that sends a header of its own does not push the proxy's entry away."""
    sent = [("X-Forwarded-For", "9.9.9.9, 8.8.8.8"), ("X-Forwarded-For", "192.0.2.1")]
    assert read(sent_as(sent), **FORWARDED).address == ip_address("192.0.2.1")


def test_an_address_header_that_came_twice_is_no_address() -> None:
    """The proxy overwrites it; where two arrive, it did not, and neither is believed."""
    assert read(sent_as([("X-Client-IP", "9.9.9.9"), ("x-client-ip", "192.0.2.1")])).address is None


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({"x-session-id": "h"}, "h"),
        ({"x-session-id": "h", "cookie": "session_id=c"}, "h"),
        ({"x-session-id": "", "cookie": "session_id=c"}, "c"),
        ({"cookie": "session_id=c"}, "c"),
        ({"cookie": "a=1; session_id=c; b=2"}, "c"),
        ({"cookie": "session_id=first; session_id=second"}, "first"),
        ({"cookie": 'session_id="c"'}, "c"),
        ({"cookie": "session_id=a=b"}, "a=b"),
        ({"cookie": "xsession_id=no"}, None),
        ({"cookie": "Session_Id=no"}, None),
        ({"cookie": "session_id="}, None),
        ({"cookie": "session_id"}, None),
        ({"cookie": ";;=;"}, None),
        ({}, None),
    ],
)
def test_a_session_is_the_header_or_else_the_cookie(headers: dict[str, str], session: str | None) -> None:
    """An empty value is none."""
    assert read(headers).session_id == session


def test_other_names_are_read_where_they_are_configured() -> None:
    """And those of the defaults then mean nothing."""
    headers = {"sid": "s", "uid": "u", "x-session-id": "no", "x-user-id": "no", "cookie": "session_id=no"}
    found = read(headers, session_header="sid", session_cookie=None, user_header="uid")
    assert (found.session_id, found.user_id) == ("s", "u")
    nothing = read(headers, session_header=None, session_cookie=None, user_header=None)
    assert (nothing.session_id, nothing.user_id) == (None, None)


def test_a_client_header_counts_only_if_configured_and_never_against_a_pinned_client() -> None:
    """Callers can forge it; the operator's path cannot be."""
    headers = {"x-client": "named"}
    assert read(headers).client_id is None
    assert read(headers, client_header="x-client").client_id == "named"
    assert read({"x-client": ""}, client_header="x-client").client_id is None
    assert read(headers, client_id="pinned", client_header="x-client").client_id == "pinned"


@pytest.mark.parametrize("name", ["x-session-id", "x-user-id", "x-client"])
def test_a_header_that_came_twice_says_nothing(name: str) -> None:
    """Each second value would be somebody new, while the application may read the first."""
    sent = [(name.title(), "mine"), (name, "x"), ("Cookie", "session_id=x"), ("Cookie", "session_id=y")]
    found = read(sent_as(sent), client_header="x-client")
    assert (found.user_id, found.client_id) == (None, None)
    # The cookie stands in for a header that is not there, not for one that says nothing.
    assert found.session_id == (None if name == "x-session-id" else "x")


@pytest.mark.parametrize("name", ["X_User_Id", "X.User.Id", "X-User_Id", "XUserId", "X-User-Id-"])
def test_a_name_with_other_characters_is_another_name(name: str) -> None:
    """Whatever an application makes of it."""
    found = read(sent_as([(name, "7")]))
    assert found.user_id is None


@pytest.mark.parametrize("value", ["\udcff\udc80", "x" * 100_000, "é", "\x7f"])
def test_a_value_is_taken_as_it_came(value: str) -> None:
    """Bytes that are no text, or very many of them, are a caller like any other."""
    found = read({"x-user-id": value, "x-session-id": value})
    assert (found.user_id, found.session_id) == (value, value)


def test_repeated_headers_are_joined_as_http_joins_them() -> None:
    """In order, with a comma, cookies with a semicolon, names in lower case."""
    sent = [("Cookie", "a=1"), ("X-A", "1"), ("cookie", "b=2"), ("x-a", "2"), ("X-A", "")]
    headers = sent_as(sent)
    assert headers == {"cookie": "a=1; b=2", "x-a": "1,2,"}
    assert (headers["x-a"], headers.get("x-b"), "x-a" in headers, "x-b" in headers) == (
        "1,2,",
        None,
        True,
        False,
    )
