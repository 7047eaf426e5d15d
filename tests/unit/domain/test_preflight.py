"""CORS preflights that are not counted."""

from typing import Any

import pytest

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Mode, OnMissing, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from tests.decisions import rule

ASKS = {"origin": "https://shop.example", "access-control-request-method": "PUT"}
FREE = Policy(default_client="c", count_preflights=False)


def request(method: str = "OPTIONS", headers: dict[str, str] | None = None) -> RequestMetadata:
    return RequestMetadata(method=method, target="/x", headers=ASKS if headers is None else headers)


def decided(of: RequestMetadata, *rules: Rule, policy: Policy = FREE, **fields: Any) -> Any:
    return RuleSet([Client(id="c", rules=rules, **fields)], policy).checks_for(of)


@pytest.mark.parametrize(
    ("method", "headers", "free"),
    [
        ("OPTIONS", ASKS, True),
        ("OPTIONS", ASKS | {"access-control-request-headers": "x-a"}, True),
        ("OPTIONS", {"origin": "https://shop.example"}, False),
        ("OPTIONS", {"access-control-request-method": "PUT"}, False),
        ("OPTIONS", ASKS | {"origin": ""}, False),
        ("OPTIONS", {}, False),
        ("GET", ASKS, False),
        ("PUT", ASKS, False),
        ("options", ASKS, False),
        ("", ASKS, False),
    ],
)
def test_only_what_browsers_ask_before_a_request_is_free(
    method: str, headers: dict[str, str], free: bool
) -> None:
    """Anything else with these headers is a request like others; preflights are too unless configured."""
    answer = decided(request(method, headers), rule())
    assert isinstance(answer, Decision) is free
    if free:
        assert answer == Decision(True, Reason.EXEMPT, "c")
    assert not isinstance(
        decided(request(method, headers), rule(), policy=Policy(default_client="c")), Decision
    )


def test_a_preflight_needs_no_identifier() -> None:
    """Browsers send neither cookies nor keys with one."""
    assert decided(request(), rule(identifier_type="user_id", on_missing=OnMissing.DENY)).allowed


def test_a_block_rule_refuses_preflights_too() -> None:
    """Unless it only watches."""
    block = Rule(id="b", route="/*", mode=Mode.BLOCK)
    assert decided(request(), rule(), block).reason is Reason.BLOCKED
    watched = decided(request(), rule(), block, enforcement=Enforcement.SHADOW)
    assert (watched.allowed, watched.reason) == (True, Reason.EXEMPT)


def test_shadow_rules_do_not_count_them_either() -> None:
    """They report what would be if they were in force."""
    assert decided(request(), rule(mode=Mode.SHADOW)) == Decision(True, Reason.EXEMPT, "c")


def test_without_a_rule_for_them_there_is_no_policy() -> None:
    """They are not exempt from what is not there."""
    assert decided(request(), rule(method="GET")).reason is Reason.NO_POLICY


@pytest.mark.parametrize(
    ("of", "rules", "told"),
    [
        (request(), [rule()], True),
        (request("GET"), [rule()], False),
        (request(), [Rule(id="b", route="/*", mode=Mode.BLOCK)], False),
        (request(), [Rule(id="e", route="/*", mode=Mode.EXEMPT)], False),
        (request(), [rule(method="GET")], False),
    ],
)
def test_the_explanation_says_that_it_is_a_preflight(
    of: RequestMetadata, rules: list[Rule], told: bool
) -> None:
    """Where that is why nothing is counted."""
    assert RuleSet([Client(id="c", rules=tuple(rules))], FREE).explain(of).preflight is told
    counted = RuleSet([Client(id="c", rules=tuple(rules))], Policy(default_client="c")).explain(of)
    assert not counted.preflight
