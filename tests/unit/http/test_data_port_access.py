"""Who may ask: the peers that are trusted, and the secret."""

import pytest
from multidict import CIMultiDict

from sidecar.infrastructure.http.access import LOOPBACK, PRIVATE, Access, networks
from sidecar.infrastructure.http.messages import Headers

SECRET, NEXT = b"the-first-secret", b"the-second-secret"


@pytest.mark.parametrize(
    ("peer", "admitted"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.255.255", True),
        ("169.254.1.1", True),
        ("fd00::1", True),
        ("fe80::1", True),
        ("fe80::1%eth0", True),
        ("::ffff:10.0.0.1", True),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("2001:db8::1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("somebody", False),
        ("/run/client.sock", False),
    ],
)
def test_by_default_this_machine_and_private_networks_may_ask(peer: str, admitted: bool) -> None:
    """In whatever form a dual-stack socket writes them; asked twice, since the answer is remembered."""
    access = Access()
    assert [access.admits(peer), access.admits(peer)] == [admitted, admitted]


def test_other_peers_replace_those_of_the_default() -> None:
    """IPv4-mapped networks are IPv4, too."""
    access = Access(trusted_peers=networks("192.0.2.0/24", "2001:db8::/32", "::ffff:198.51.100.0/120"))
    admitted = ["192.0.2.9", "2001:db8:1::1", "198.51.100.7", "::ffff:198.51.100.7"]
    assert all(map(access.admits, admitted))
    assert not any(map(access.admits, ["127.0.0.1", "10.0.0.1", "::1", "198.51.101.7"]))
    assert not any(map(Access(trusted_peers=()).admits, ["127.0.0.1", "::1"]))


def test_a_unix_socket_has_no_peers_and_a_connection_that_is_gone_is_nobody() -> None:
    """Who reaches the socket's file may ask, whatever `trusted_peers` says; nobody may not."""
    assert Access(trusted_peers=()).admits("")
    assert not Access(trusted_peers=networks("0.0.0.0/0", "::/0")).admits(None)


def test_only_so_many_peers_are_remembered() -> None:
    """A stranger with a network of addresses takes no memory; each is decided all the same."""
    access = Access(trusted_peers=LOOPBACK + PRIVATE)
    for number in range(5000):
        assert not access.admits(f"2001:db8::{number:x}")
    assert len(access._known) <= 1024
    assert access.admits("10.0.0.1")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("the-first-secret", True),
        ("the-second-secret", True),
        ("the-first-secre", False),
        ("the-first-secret ", False),
        ("THE-FIRST-SECRET", False),
        ("the-first-secret,the-first-secret", False),
        ("the-first-secret,the-second-secret", False),
        ("", False),
        ("the-first-secret\udcff", False),
        ("\udcff\udc80", False),
        ("é" * 16, False),
        ("x" * 100_000, False),
    ],
)
def test_any_of_the_secrets_will_do_and_nothing_else(given: str, taken: bool) -> None:
    """Two while one is replaced; bytes that are no text are wrong like any others."""
    headers = Headers(CIMultiDict({"X-Sidecar-Secret": given}))
    assert (Access(secrets=(SECRET, NEXT)).without_secret(headers) is not None) is taken


def test_the_secret_is_taken_out_of_the_headers() -> None:
    """So no rule can count it, and nothing can show it; where none is configured, no header is special."""
    sent = {"X-Sidecar-Secret": SECRET.decode(), "X-Own": NEXT.decode(), "A": "b"}
    headers = Headers(CIMultiDict(sent))
    assert Access().without_secret(headers) == headers
    assert len(headers) == 3
    left = Access(secrets=(SECRET,)).without_secret(headers)
    assert left is not None
    assert dict(left) == {"x-own": NEXT.decode(), "a": "b"}
    rest = Access(secrets=(NEXT,), secret_header="x-own").without_secret(left)
    assert rest is not None
    assert dict(rest) == {"a": "b"}
    assert Access(secrets=(SECRET,)).without_secret(left) is None
