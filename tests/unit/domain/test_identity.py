"""Who is counted: from a request to the text that stands for its caller in a counter's key."""

import base64
import hashlib
import json
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain.identity import (
    IdentifierReader,
    IdentityOptions,
    check_identifier_type,
    check_written,
    encode,
    fallback_to_address,
)
from sidecar.domain.request import RequestMetadata

tried = settings(deadline=None, max_examples=500)


def read(kind: str | tuple[str, ...], path: str | None = "/", **request: Any) -> str | None:
    """The identifier of a request for these types, in a route `/users/{id}`."""
    reader = IdentifierReader(kind, {"id": 1}, IdentityOptions())
    values = reader.values(RequestMetadata(method="GET", target="/", **request), path)
    return None if values is None else reader.identifier(values)


def payload(claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


FOUND: list[tuple[str | tuple[str, ...], dict[str, Any], str]] = [
    ("none", {}, "="),
    ("session_id", {"session_id": "s1"}, "=s1"),
    ("user_id", {"user_id": "42"}, "=42"),
    ("ip", {"address": IPv4Address("192.0.2.1")}, "=192.0.2.1"),
    ("ip", {"address": IPv6Address("2001:db8::1:2:3:4")}, "=2001:db8::/64"),
    ("ip", {}, "=?"),
    (
        "ip_user_agent",
        {"address": IPv4Address("192.0.2.1"), "user_agent": "curl/8"},
        "=" + sha256("192.0.2.1|curl/8")[:16],
    ),
    ("ip_user_agent", {"user_agent": "curl/8"}, "=" + sha256("?|curl/8")[:16]),
    ("header:X-Tenant", {"headers": {"x-tenant": "acme"}}, "=acme"),
    ("cookie:sid", {"headers": {"cookie": "a=1; sid=s2"}}, "=s2"),
    ("path:id", {"path": "/users/7"}, "=7"),
    ("jwt_claim:sub", {"headers": {"x-jwt-payload": payload({"sub": "ann"})}}, "=ann"),
    ("jwt_claim:https://x/t", {"headers": {"x-jwt-payload": payload({"https://x/t": "acme"})}}, "=acme"),
    (("user_id", "ip"), {"user_id": "42", "address": IPv4Address("192.0.2.1")}, "=42|=192.0.2.1"),
    (("header:a", "user_id"), {"headers": {"a": "x|y"}, "user_id": "1"}, f"#{sha256('x|y')}|=1"),
]


@pytest.mark.parametrize(("kind", "request_", "identifier"), FOUND)
def test_each_type_reads_its_identifier(
    kind: str | tuple[str, ...], request_: dict[str, Any], identifier: str
) -> None:
    """From where the contract says, and written so that its key space shows."""
    assert read(kind, **request_) == identifier


MISSING: list[tuple[str | tuple[str, ...], dict[str, Any]]] = [
    ("session_id", {}),
    ("user_id", {}),
    ("ip_user_agent", {"address": IPv4Address("192.0.2.1")}),
    ("header:x-tenant", {"headers": {"x-tenant": ""}}),
    ("cookie:sid", {}),
    ("cookie:sid", {"headers": {"cookie": "SID=1; sid2=2"}}),
    ("path:id", {"path": None}),
    ("jwt_claim:sub", {}),
    (("ip", "session_id"), {"address": IPv4Address("192.0.2.1")}),
    (("session_id", "user_id"), {"session_id": "s"}),
]


@pytest.mark.parametrize(("kind", "request_"), MISSING)
def test_an_absent_identifier_is_missing(kind: str | tuple[str, ...], request_: dict[str, Any]) -> None:
    """Of a combined key, one part is enough."""
    assert read(kind, **request_) is None


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("none", None),
        ("session_id", None),
        ("header:X-Tenant", None),
        ("cookie:sid", None),
        ("path:id", None),
        ("jwt_claim:sub", None),
        ("path:other", "the route has no segment {other}"),
        ("session", "got 'session'"),
        ("header:", "got 'header:'"),
        ("header:a b", "got 'header:a b'"),
        ("ip:x", "got 'ip:x'"),
        ("", "got ''"),
    ],
)
def test_an_identifier_type_is_checked(kind: str, complaint: str | None) -> None:
    """Unknown types and names that no header has are refused, as are segments that the route has not."""
    problem = check_identifier_type(kind, {"id"})
    assert problem is None if complaint is None else complaint in (problem or "")


SHORT = "x" * 128


@pytest.mark.parametrize("value", ["", "a", SHORT, "=a", "#a", "~ip=a", "{a}", "a b", "é", "a/b", "?"])
def test_a_plain_value_is_itself(value: str) -> None:
    """People find it in the store."""
    assert encode(value) == f"={value}"


@pytest.mark.parametrize(
    "value", [SHORT + "x", "a:b", "a|b", "a\nb", "\x00", "\x7f", "\x9f", "\ud800", chr(0xDCFF)]
)
def test_a_long_or_unprintable_value_is_hashed(value: str) -> None:
    """So that no key is long, and no part of one can be mistaken for two."""
    assert encode(value) == "#" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


values = st.one_of(
    st.text(st.characters(), max_size=6),
    st.text(st.sampled_from("=#~?|:a\x00\ud800\udcff"), max_size=4),
    st.integers(126, 131).map(lambda length: "x" * length),
    st.sampled_from(["?", "~shared", "~ip=?", "=?", "#" + sha256("a|b"), "a|b", "192.0.2.1"]),
)
KINDS = ("session_id", "header:a", "user_id")


def combined(parts: tuple[str, ...]) -> str:
    return IdentifierReader(KINDS[: len(parts)], {}, IdentityOptions()).identifier(parts)


@given(st.integers(1, 3).flatmap(lambda count: st.tuples(*[st.tuples(*[values] * count)] * 2)))
@tried
def test_no_two_values_share_a_text(pair: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """Neither alone nor as parts of a combined key, whatever separators they contain."""
    one, other = pair
    assert (combined(one) == combined(other)) == (one == other)


@given(st.integers(1, 3).flatmap(lambda count: st.tuples(*[values] * count)))
@tried
def test_no_value_reaches_the_key_space_of_a_fallback(parts: tuple[str, ...]) -> None:
    """What a caller sends is never counted as if it were missing, makes no long key, and can be stored."""
    text = combined(parts)
    assert not text.startswith("~")
    assert ":" not in text
    assert len(text.encode()) <= len(parts) * (4 * 128 + 2)


def test_a_fallback_names_the_address() -> None:
    """By the same networks as the type `ip`, unreadable ones together."""
    options = IdentityOptions(ipv6_prefix=56)
    assert fallback_to_address(IPv4Address("192.0.2.1"), options) == "~ip=192.0.2.1"
    assert fallback_to_address(IPv6Address("2001:db8:0:ff::1"), options) == "~ip=2001:db8::/56"
    assert fallback_to_address(None, options) == "~ip=?"


WRITTEN: list[tuple[str | tuple[str, ...], str, tuple[str, ...]]] = [
    ("session_id", "a|b", ("a|b",)),
    ("ip", "::ffff:192.0.2.1", ("192.0.2.1",)),
    ("ip", "2001:DB8::1", ("2001:db8::/64",)),
    (("user_id", "ip"), "42|192.0.2.1", ("42", "192.0.2.1")),
    (("user_id", "session_id"), "42|a|b", ("42", "a|b")),
]


@pytest.mark.parametrize(("kind", "written", "parts"), WRITTEN)
def test_an_identifier_that_a_person_writes_is_read_like_a_request(
    kind: str | tuple[str, ...], written: str, parts: tuple[str, ...]
) -> None:
    """In overrides and views: addresses in any spelling, parts of a combined key joined by `|`."""
    assert check_written(kind, written) is None
    assert IdentifierReader(kind, {}, IdentityOptions()).parse(written) == parts


@pytest.mark.parametrize(
    ("kind", "written", "complaint"),
    [
        ("none", "x", "nobody can be named"),
        ("ip", "localhost", "expected an address"),
        (("user_id", "ip"), "42", "expected 2 parts"),
        (("user_id", "ip"), "42|x", "expected an address"),
    ],
)
def test_a_written_identifier_that_no_request_has_is_refused(
    kind: str | tuple[str, ...], written: str, complaint: str
) -> None:
    """An override for it would silently never apply."""
    assert complaint in (check_written(kind, written) or "")
