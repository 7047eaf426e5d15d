"""What a rule set knows beside the rules: how often counters were reset, and whether it has all clients."""

from typing import Any

import pytest

from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Mode, Rule
from sidecar.domain.ruleset import Policy, RuleSet


def rule(rule_id: str, **fields: Any) -> Rule:
    return Rule(
        **{
            "id": rule_id,
            "route": "/*",
            "identifier_type": "none",
            "limit": 1,
            "window_seconds": 60,
            **fields,
        }
    )


CLIENTS = [Client(id=client_id, rules=(rule("a"), rule("b"))) for client_id in ("c", "d")]


def checks(rule_set: RuleSet, client_id: str = "c") -> list[Check]:
    answer = rule_set.checks_for(RequestMetadata(method="GET", target="/", client_id=client_id))
    assert isinstance(answer, list), answer
    return answer


@pytest.mark.parametrize(
    ("resets", "expected"),
    [
        ({}, {"a": 0, "b": 0}),
        ({("c", "a"): 2}, {"a": 2, "b": 0}),
        ({("c", "*"): 3}, {"a": 3, "b": 3}),
        ({("c", "a"): 2, ("c", "*"): 3}, {"a": 5, "b": 3}),
        ({("d", "a"): 2, ("d", "*"): 3}, {"a": 0, "b": 0}),
    ],
)
def test_a_check_knows_how_often_its_counters_were_reset(
    resets: dict[tuple[str, str], int], expected: dict[str, int]
) -> None:
    """Those of the rule and those of the whole client add up: each begins a generation of its own."""
    rule_set = RuleSet(CLIENTS, resets=resets)
    assert {check.rule.id: check.resets for check in checks(rule_set)} == expected
    assert {rule_id: rule_set.resets("c", rule_id) for rule_id in expected} == expected


def test_a_rule_set_is_complete_unless_it_is_said_that_it_is_not() -> None:
    """It decides by what it has either way; who asks it may know better."""
    assert RuleSet().complete
    incomplete = RuleSet(CLIENTS, complete=False)
    assert not incomplete.complete
    assert len(checks(incomplete)) == 2
    unknown = RequestMetadata(method="GET", target="/", client_id="unknown")
    assert incomplete.checks_for(unknown) == Decision(True, Reason.NO_POLICY)


def test_a_refusal_that_is_only_watched_is_counted_on_no_counter_of_its_rule() -> None:
    """What stands for it costs more than fits, so it is never charged; the other checks are as ever."""
    blocking = Rule(id="shut", route="/*", mode=Mode.BLOCK)
    clients = [Client(id="c", rules=(rule("a"), blocking))]
    watched = checks(RuleSet(clients, Policy(enforcement=Enforcement.SHADOW)))
    by_rule = {check.rule.id: check for check in watched}
    assert by_rule.keys() == {"a", "shut"}
    assert all(check.shadow and check.client_id == "c" for check in watched)
    assert by_rule["shut"].cost > by_rule["shut"].capacity
    assert by_rule["a"].cost <= by_rule["a"].capacity
