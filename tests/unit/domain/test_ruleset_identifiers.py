"""What a rule counts for one request: its identifier, that identifier's own limit, and the cost."""

from ipaddress import ip_address
from typing import Any

import pytest

from sidecar.domain.algorithms import MAX_INTEGER, Algorithm
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.identity import IdentityOptions
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Mode, OnMissing, Rule
from sidecar.domain.ruleset import Policy, RuleSet


def rule(**fields: Any) -> Rule:
    good = {"id": "r", "route": "/*", "identifier_type": "user_id", "limit": 10, "window_seconds": 60}
    return Rule(**{**good, **fields})


def ask(*rules: Rule, policy: Policy | None = None, **request: Any) -> list[Check] | Decision:
    asked = RequestMetadata(**{"method": "GET", "target": "/", "client_id": "c", **request})
    return RuleSet([Client(id="c", rules=rules)], policy).checks_for(asked)


def only(answer: list[Check] | Decision) -> Check:
    assert isinstance(answer, list), answer
    (check,) = answer
    return check


def verdict(answer: list[Check] | Decision) -> tuple[bool, Reason, str | None]:
    assert isinstance(answer, Decision), answer
    return answer.allowed, answer.reason, answer.rule_id


def would_refuse(answer: list[Check] | Decision) -> dict[str, bool]:
    """Rule → whether it is only watched and never fits."""
    assert isinstance(answer, list), answer
    return {check.rule.id: check.shadow and check.cost > check.capacity for check in answer}


ADDRESS = ip_address("192.0.2.1")


@pytest.mark.parametrize(
    ("on_missing", "identifier"), [(OnMissing.IP, "~ip=192.0.2.1"), (OnMissing.SHARED, "~shared")]
)
def test_a_missing_identifier_is_counted_in_a_key_space_of_its_own(
    on_missing: OnMissing, identifier: str
) -> None:
    """By the rule's own wish or, where it has none, by the general one."""
    policy = Policy(on_missing=on_missing)
    assert only(ask(rule(), policy=policy, address=ADDRESS)).identifier == identifier
    other = Policy(on_missing=OnMissing.DENY)
    assert only(ask(rule(on_missing=on_missing), policy=other, address=ADDRESS)).identifier == identifier


def test_a_missing_identifier_falls_back_to_the_address_by_default() -> None:
    """And without one to a bucket that all such callers share."""
    assert only(ask(rule(), address=ADDRESS)).identifier == "~ip=192.0.2.1"
    assert only(ask(rule())).identifier == "~ip=?"


def test_a_missing_identifier_is_refused_where_that_is_asked_for() -> None:
    """A shadow rule refuses nothing, and is reported to have wanted to."""
    deny = rule(on_missing=OnMissing.DENY)
    assert verdict(ask(deny)) == (False, Reason.IDENTIFIER_MISSING, "r")
    trial = rule(id="s", on_missing=OnMissing.DENY, mode=Mode.SHADOW)
    everyone = rule(id="n", identifier_type="none")
    assert would_refuse(ask(trial, everyone)) == {"s": True, "n": False}
    shadow = Policy(enforcement=Enforcement.SHADOW)
    assert would_refuse(ask(deny, everyone, policy=shadow)) == {"r": True, "n": False}


def test_an_override_of_no_one_is_not_met_by_a_missing_identifier() -> None:
    """A fallback is not a named identifier, whatever the name."""
    named = rule(overrides={"~shared": 99, "shared": 99, "~ip=?": 99, "?": 99})
    assert only(ask(named)).limit == 10
    assert only(ask(named, policy=Policy(on_missing=OnMissing.SHARED))).limit == 10


OVERRIDES: dict[str, int | str] = {"vip": 1000, "bad": "block", "own": "unlimited", "a|b:c": 5}


@pytest.mark.parametrize(("user", "limit"), [("vip", 1000), ("VIP", 10), ("someone", 10), ("a|b:c", 5)])
def test_an_override_gives_a_named_identifier_its_own_limit(user: str, limit: int) -> None:
    """Compared before anything is hashed; the identifier's counter stays the same one."""
    check = only(ask(rule(overrides=OVERRIDES), user_id=user))
    assert (check.limit, check.capacity) == (limit, limit)
    assert check.identifier == only(ask(rule(), user_id=user)).identifier


def test_an_override_blocks() -> None:
    """Where the rule enforces; where it only watches, that is reported."""
    assert verdict(ask(rule(overrides=OVERRIDES), user_id="bad")) == (False, Reason.BLOCKED, "r")
    trial = rule(overrides=OVERRIDES, mode=Mode.SHADOW)
    assert would_refuse(ask(trial, rule(id="real"), user_id="bad")) == {"r": True, "real": False}
    assert would_refuse(ask(trial, rule(id="real"), user_id="good")) == {"r": False, "real": False}


def test_an_override_lifts_the_limit() -> None:
    """Of its own rule alone; with no other rule the request is exempt."""
    free = rule(overrides=OVERRIDES)
    assert verdict(ask(free, user_id="own")) == (True, Reason.EXEMPT, None)
    assert only(ask(free, rule(id="other"), user_id="own")).rule.id == "other"


@pytest.mark.parametrize("written", ["192.0.2.1", "::ffff:192.0.2.1", "[192.0.2.1]:80"])
def test_an_override_of_an_address_is_met_in_any_spelling(written: str) -> None:
    """A person writes addresses as a proxy does."""
    assert only(ask(rule(identifier_type="ip", overrides={written: 99}), address=ADDRESS)).limit == 99


def test_an_override_of_an_ipv6_address_is_that_of_its_network() -> None:
    """The network is what is counted."""
    by_ip = rule(identifier_type="ip", overrides={"2001:db8::1": 99})
    assert only(ask(by_ip, address=ip_address("2001:db8::2"))).limit == 99
    policy = Policy(identity=IdentityOptions(ipv6_prefix=128))
    assert only(ask(by_ip, address=ip_address("2001:db8::2"), policy=policy)).limit == 10


def test_an_override_may_be_written_as_the_network_that_is_counted() -> None:
    """As `state` and the documentation show it."""
    by_ip = rule(identifier_type="ip", overrides={"2001:db8::/64": 99})
    assert only(ask(by_ip, address=ip_address("2001:db8::2"))).limit == 99


def test_an_exempt_network_in_ipv4_mapped_form_is_the_ipv4_one() -> None:
    """Callers are brought to IPv4, so the networks are too."""
    client = Client(id="c", exempt_ips=("::ffff:192.0.2.0/120",), rules=(rule(),))
    request = RequestMetadata(method="GET", target="/", client_id="c", address=ADDRESS)
    assert verdict(RuleSet([client]).checks_for(request)) == (True, Reason.EXEMPT, None)


def test_only_shadow_rules_that_leave_the_caller_alone_exempt_nobody() -> None:
    """What no enforcing rule lifted is simply allowed."""
    trial = rule(mode=Mode.SHADOW, overrides={"vip": "unlimited"})
    assert verdict(ask(trial, user_id="vip")) == (True, Reason.ALLOWED, None)


@pytest.mark.parametrize("kind", ["ip", "ip_user_agent", ("ip", "header:user-agent"), ("user_id", "ip")])
def test_an_address_that_nobody_says_is_missing_and_one_that_is_unreadable_is_counted(
    kind: str | tuple[str, ...],
) -> None:
    """A caller of the API may leave it out; a proxy that sends nonsense must not lift a limit."""
    who: dict[str, Any] = {"user_id": "u", "user_agent": "ua", "headers": {"user-agent": "ua"}}
    denying = rule(identifier_type=kind, on_missing=OnMissing.DENY)
    unsaid = ask(denying, has_address=False, **who)
    assert verdict(unsaid) == (False, Reason.IDENTIFIER_MISSING, "r")
    counted = only(ask(denying, **who))
    assert counted.identifier == only(ask(rule(identifier_type=kind), **who)).identifier
    assert only(ask(rule(identifier_type=kind), has_address=False, **who)).identifier == "~ip=?"


def test_an_override_of_a_combined_key_is_met_by_its_own_parts_alone() -> None:
    """A caller cannot move a separator from one part into the other."""
    combined = rule(identifier_type=("header:tenant", "user_id"), overrides={"acme|ann|x": "unlimited"})
    assert isinstance(ask(combined, headers={"tenant": "acme"}, user_id="ann|x"), Decision)
    assert only(ask(combined, headers={"tenant": "acme|ann"}, user_id="x")).limit == 10


@pytest.mark.parametrize(
    ("of_rule", "of_request", "cost"),
    [(1, 1, 1), (2, 1, 2), (2, 3, 6), (2, 0, 2), (1, 7, 7), (1, 10**30, 20)],
)
def test_a_request_multiplies_the_cost_of_a_rule(of_rule: int, of_request: int, cost: int) -> None:
    """A cost of 0 looks as 1 would; one that can never fit stays a number that a store can hold."""
    assert only(ask(rule(cost=of_rule), cost=of_request)).cost == cost


def test_a_cost_that_can_never_fit_is_a_number_that_doubles_hold() -> None:
    """Even of the largest limit."""
    check = only(ask(rule(algorithm=Algorithm.FIXED_WINDOW, limit=MAX_INTEGER), cost=10**30))
    assert check.cost > check.capacity
    assert int(float(check.cost)) == check.cost


def test_a_token_bucket_is_held_to_its_burst() -> None:
    """Also where an override gives an identifier a rate of its own."""
    bucket = rule(algorithm=Algorithm.TOKEN_BUCKET, burst=50, overrides={"vip": 100})
    check = only(ask(bucket, user_id="vip"))
    assert (check.limit, check.capacity) == (100, 50)
    assert (
        only(ask(rule(algorithm=Algorithm.TOKEN_BUCKET, overrides={"vip": 100}), user_id="vip")).capacity
        == 100
    )


def test_path_segments_identify() -> None:
    """In the canonical path, so that one spelling is as good as another."""
    by_id = rule(route="/users/{id}/posts", identifier_type="path:id")
    for target in ("/users/a/posts", "/users/%61/posts?x", "//users/b/../a/posts/"):
        assert only(ask(by_id, target=target)).identifier == "=a"
