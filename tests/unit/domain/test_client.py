"""Clients check themselves and their rules together, and give rules without an id one of their own."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.domain.algorithms import Algorithm
from sidecar.domain.errors import InvalidValue
from sidecar.domain.rule import ID_PATTERN, Client, Mode, Rule

GOOD: dict[str, Any] = {
    "id": "r",
    "route": "/users/{id}",
    "identifier_type": "session_id",
    "limit": 10,
    "window_seconds": 60,
}


def rule(**fields: Any) -> Rule:
    return Rule(**{**GOOD, **fields})


def derived(client_id: str = "c", **fields: Any) -> str:
    return Client(id=client_id, rules=(rule(id="", **fields),)).rules[0].id


def test_a_derived_id_is_the_same_in_every_process() -> None:
    """Counters are found by it after a restart and on every replica, so it is written down here."""
    assert derived() == "3b5cee56-b346-5d9f-b05a-ad258b56b2bf"
    assert ID_PATTERN.fullmatch(derived())


def test_a_derived_id_differs_with_what_is_counted() -> None:
    """Client, route, method, identifier type, algorithm and window."""
    changes: list[dict[str, Any]] = [
        {"route": "/*"},
        {"method": "GET"},
        {"method": ("GET", "PUT")},
        {"algorithm": Algorithm.TOKEN_BUCKET},
        {"window_seconds": 61},
        {"identifier_type": "user_id"},
        {"identifier_type": ("session_id", "user_id")},
    ]
    ids = [derived(), derived("d"), *(derived(**fields) for fields in changes)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("fields", [{"limit": 99}, {"cost": 2}, {"final": True}, {"mode": Mode.SHADOW}])
def test_a_derived_id_stays_while_the_same_is_counted(fields: dict[str, Any]) -> None:
    """A changed limit must not orphan the counters."""
    assert derived(**fields) == derived()
    assert derived(method=("PUT", "GET")) == derived(method=("GET", "PUT"))


def refused(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidValue) as caught:
        Client(**{"id": "c", **fields})
    return dict(caught.value.problems)


def test_two_rules_that_count_the_same_ask_for_ids() -> None:
    """Their derived ids are equal, and so would be their counters."""
    message = refused(rules=(rule(id=""), rule(id="", limit=99)))["rules"]
    assert "give each an id" in message
    assert "/users/{id}" in message
    assert Client(id="c", rules=(rule(id="a"), rule(id="b"))).rules[1].id == "b"


def test_an_id_stands_once() -> None:
    """Two rules of one id would share counters unasked."""
    assert refused(rules=(rule(), rule(limit=99, route="/*")))["rules"] == "the rule id 'r' stands 2 times"
    taken = derived()
    assert "stands 2 times" in refused(rules=(rule(id=""), replace(rule(route="/*"), id=taken)))["rules"]


def test_a_client_tells_all_its_problems_at_once() -> None:
    """By place in each list."""
    hosts = ("a.example", "b.example:80", "*", "a b", "*.*.c")
    found = refused(
        id="a b", hosts=hosts, exempt_ips=("10.0.0.0/8", "10.0.0.1/8", "x"), rules=(rule(), rule())
    )
    places = {"hosts.1", "hosts.2", "hosts.3", "hosts.4", "exempt_ips.1", "exempt_ips.2"}
    assert set(found) == {"id", "rules", *places}


@pytest.mark.parametrize(
    "host",
    [
        "a..b",
        "a-.com",
        "-a.com",
        ".a",
        "a.-b",
        "*.-a",
        "*.a..b",
        "a" * 64,
        f"{'a' * 63}." * 4 + "com",
        "a.com\n",
    ],
)
def test_a_host_that_no_request_can_have_is_refused(host: str) -> None:
    """Its labels are those of RFC 1123."""
    assert set(refused(hosts=(host,))) == {"hosts.0"}


@pytest.mark.parametrize(
    "host", ["a", "a-b.c--d.com", "_sip._tcp.a_b.com", "10.0.0.1", "xn--bcher-kva.example", "a" * 63, "*.a"]
)
def test_a_host_of_letters_digits_hyphens_and_underscores_is_taken(host: str) -> None:
    """Underscores are no host names, and yet used."""
    assert Client(id="c", hosts=(host,)).hosts == (host,)


def test_hosts_are_kept_as_they_are_compared() -> None:
    """Lower case, without final dot."""
    client = Client(id="c", hosts=("API.Example.COM.", "*.Example.com", "[2001:DB8::1]"))
    assert client.hosts == ("api.example.com", "*.example.com", "[2001:db8::1]")
