"""Headers that say who is calling, sent twice: never somebody new."""

import base64
from typing import Any

import pytest
from multidict import CIMultiDict

from sidecar.domain.rule import Client, OnMissing
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.http.messages import Call, Headers
from sidecar.infrastructure.http.sources import Sources
from tests.decisions import rule

Sent = list[tuple[str, str]]


def payload(claim: str) -> str:
    return base64.urlsafe_b64encode(b'{"sub": "%b"}' % claim.encode()).decode().rstrip("=")


def counted(kind: str, sent: Sent, on_missing: OnMissing = OnMissing.IP) -> Any:
    """The identifier, or the decision where there is none."""
    headers = Headers(CIMultiDict([("X-Client-IP", "192.0.2.1"), *sent]))
    asked = Sources().request(Call("GET", "/", headers), "GET", "/", "h")
    rules = (rule(identifier_type=kind, on_missing=on_missing),)
    found = RuleSet([Client(id="c", rules=rules)], Policy(default_client="c")).checks_for(asked)
    return found[0].identifier if isinstance(found, list) else found


KINDS = [
    ("user_id", "X-User-Id", str),
    ("session_id", "X-Session-ID", str),
    ("header:X-Api-Key", "X-Api-Key", str),
    ("jwt_claim:sub", "X-Jwt-Payload", payload),
]


@pytest.mark.parametrize(("kind", "name", "written"), KINDS)
def test_a_second_value_falls_back_as_if_there_were_none(kind: str, name: str, written: Any) -> None:
    """Whatever the second one is: nobody gets another limit by sending one more."""
    assert "192.0.2.1" not in counted(kind, [(name, written("mine"))])
    for count in range(20):
        sent = [(name, written("mine")), (name.lower(), written(str(count)))]
        assert counted(kind, sent) == counted(kind, [sent[1], sent[0]]) == "~ip=192.0.2.1"
        assert counted(kind, sent, OnMissing.SHARED) == "~shared"
        assert not counted(kind, sent, OnMissing.DENY).allowed


@pytest.mark.parametrize(("kind", "name", "written"), KINDS)
def test_an_empty_value_is_none_and_a_strange_one_is_a_value(kind: str, name: str, written: Any) -> None:
    """No bytes make a crash, no length a long key, and a name with other characters is another name."""
    assert counted(kind, [(name, "")]) == "~ip=192.0.2.1"
    assert counted(kind, [(name.replace("-", "_"), written("mine"))]) == "~ip=192.0.2.1"
    assert counted(kind, [(name.replace("-", "."), written("mine"))]) == "~ip=192.0.2.1"
    for strange in ("\udcff\udcfe", "x" * 100_000, "a|b:c", "%00"):
        assert len(counted(kind, [(name, strange)])) < 100
    assert counted(kind, [(name, ""), (name, "")]) == "~ip=192.0.2.1"


def test_an_address_that_came_twice_is_unreadable() -> None:
    """All such callers share one counter."""
    assert counted("ip", []) == "=192.0.2.1"
    assert counted("ip", [("X-Client-IP", "192.0.2.2")]) == "=?"
    assert counted("ip", [("X-Client-IP", "192.0.2.3")]) == "=?"


def test_a_value_may_have_a_comma_in_it() -> None:
    """As user agents do; those whose values a proxy joined have no space after it."""
    agent = "Mozilla/5.0 (X11, Linux x86_64) like Gecko"
    assert counted("header:User-Agent", [("User-Agent", agent)]) == f"={agent}"
