"""A rule's own refusal: what it may be, and what it is used for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.domain.address import canonical_address
from sidecar.domain.decision import Counted, Decision, Usage, decide
from sidecar.domain.errors import InvalidValue
from sidecar.domain.refusal import MAX_BODY, Refusal
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import BLOCK, Client, Enforcement, Mode, OnMissing, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from tests.decisions import check, rule

OWN = Refusal(status=418, body="no")
REQUEST = RequestMetadata(method="GET", target="/x", address=canonical_address("192.0.2.1"))


def wrong(**fields: Any) -> list[str]:
    with pytest.raises(InvalidValue) as caught:
        Refusal(**fields)
    return [field for field, _ in caught.value.problems]


@pytest.mark.parametrize("status", [400, 402, 403, 404, 418, 429, 451, 499])
def test_a_status_is_a_4xx(status: int) -> None:
    """Everything that says no."""
    assert Refusal(status=status).status == status


@pytest.mark.parametrize("status", [0, -1, 200, 204, 301, 399, 401, 407, 500, 503, 600, True, "429", 429.0])
def test_any_other_status_is_refused(status: Any) -> None:
    """An allowance, a limiter that is broken, a question for credentials: none is a refusal."""
    assert wrong(status=status) == ["status"]


@pytest.mark.parametrize(
    "content_type",
    [
        "text/html",
        "text/html; charset=utf-8",
        "text/html;charset=utf-8",
        'text/html; charset="utf-8"; x="a;b, c"',
        "application/vnd.api+json",
        "application/problem+json",
    ],
)
def test_a_content_type_is_one_of_http(content_type: str) -> None:
    """With parameters, if there are any."""
    assert Refusal(body="", content_type=content_type).content_type == content_type


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text",
        "text/",
        "/html",
        "text/html\r\nSet-Cookie: a=b",
        "text/html\n",
        "text/html; x=\r\nSet-Cookie: a=b",
        'text/html; x="\n"',
        "text/html; x=a b",
        "text/html;",
        "text/html; =x",
        "text/html ",
        "téxt/html",
        "text/html\x00",
        "a/" + "b" * 127,
    ],
)
def test_nothing_else_gets_into_the_header(content_type: str) -> None:
    """No second header, and none that a proxy refuses."""
    assert wrong(body="", content_type=content_type) == ["content_type"]


@given(st.text(max_size=40) | st.from_regex(r"[a-z]+/[a-z]+(; ?[ -~]*)?", fullmatch=True))
def test_a_content_type_that_is_taken_is_printable_ascii(content_type: str) -> None:
    """Whatever somebody sends to the API."""
    try:
        taken = Refusal(body="", content_type=content_type).content_type
    except InvalidValue:
        return
    assert taken is not None
    assert all(" " <= character <= "~" for character in taken)


def test_a_content_type_that_is_nearly_one_is_read_in_one_pass() -> None:
    """It comes through the API, and everything waits while it is read: for hours, were there several ways."""
    assert wrong(body="", content_type="a/b" + ";a=a" * 30 + "\x00") == ["content_type"]
    assert wrong(body="", content_type="a/b" + ";a=a" * 100_000 + "\x00") == ["content_type"]


def test_a_body_has_an_end_and_a_type_has_a_body() -> None:
    """Every problem at once."""
    assert Refusal(body="é" * MAX_BODY).body
    assert wrong(body="x" * (MAX_BODY + 1)) == ["body"]
    assert wrong(content_type="text/html") == ["content_type"]
    assert wrong(status=401, body="x" * 5000, content_type="nonsense") == ["status", "body", "content_type"]


def test_a_rule_that_refuses_nothing_has_none() -> None:
    """Changed to `exempt`, a rule has to give it up."""
    with pytest.raises(InvalidValue, match="response: has no meaning in a rule of mode exempt"):
        Rule(route="/", mode=Mode.EXEMPT, response=OWN)
    assert Rule(route="/", mode=Mode.BLOCK, response=OWN).response == OWN
    assert rule(mode=Mode.SHADOW, response=OWN).response == OWN


def test_the_rule_that_is_shown_says_it() -> None:
    """Of two that refuse, the one with the longer wait; an allowed request has nothing to say."""
    checks = [check(rule("a", response=Refusal(status=420))), check(rule("b", response=OWN))]
    usages = [Usage(False, 10, 5_000_000, 5_000_000), Usage(False, 10, 9_000_000, 9_000_000)]
    assert decide(checks, Counted(False, 0, usages)).refusal == OWN
    assert decide(checks, Counted(False, 0, usages[::-1])).refusal == Refusal(status=420)
    assert decide(checks, Counted(True, 0, [Usage(True, 1, 0, 1)] * 2)).refusal is None


def decided(*rules: Rule, enforcement: Enforcement = Enforcement.ON) -> Any:
    clients = [Client(id="c", rules=rules, enforcement=enforcement)]
    return RuleSet(clients, Policy(default_client="c")).checks_for(REQUEST)


def test_a_block_rule_says_it() -> None:
    """While it blocks; where it only watches, nobody is told."""
    block = Rule(id="b", route="/*", mode=Mode.BLOCK, response=OWN)
    assert decided(block).refusal == OWN
    assert not isinstance(decided(block, enforcement=Enforcement.SHADOW), Decision)


def test_it_is_for_a_limit_that_is_reached_not_for_other_refusals_of_the_rule() -> None:
    """`wait a minute` would not be true for a caller that is blocked, or has to say who it is."""
    blocked = decided(rule(identifier_type="ip", overrides={"192.0.2.1": BLOCK}, response=OWN))
    missing = decided(rule(identifier_type="user_id", on_missing=OnMissing.DENY, response=OWN))
    assert (blocked.allowed, blocked.refusal) == (missing.allowed, missing.refusal) == (False, None)
