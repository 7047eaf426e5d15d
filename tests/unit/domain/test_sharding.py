"""Clients that are spread by identifier: which may be, and that one request never needs two servers."""

import random
import string
from ipaddress import ip_address
from typing import Any

import pytest
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from sidecar.domain.decision import Check
from sidecar.domain.errors import InvalidValue
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Enforcement, Mode, OnMissing, Rule
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.domain.sharding import SHARDS, ShardBy, shard_of
from tests.decisions import check

IDS = string.ascii_letters + string.digits + "._-"


def rule(rule_id: str, route: str = "/*", **fields: Any) -> Rule:
    counted = {"identifier_type": "user_id", "limit": 10, "window_seconds": 60}
    return Rule(**{"id": rule_id, "route": route, **counted, **fields})


def problems(*rules: Rule) -> list[str]:
    """All are of the field that asked for it."""
    with pytest.raises(InvalidValue) as caught:
        Client(id="c", rules=rules, shard_by=ShardBy.IDENTIFIER)
    assert {field for field, _ in caught.value.problems} == {"shard_by"}
    return [message for _, message in caught.value.problems]


def checks_of(*rules: Rule, policy: Policy | None = None, **request: Any) -> list[Check]:
    asked = RequestMetadata(**{"method": "GET", "target": "/", "client_id": "c", **request})
    client = Client(id="c", rules=rules, shard_by=ShardBy.IDENTIFIER)
    checks = RuleSet([client], policy).checks_for(asked)
    assert isinstance(checks, list)
    return checks


@pytest.mark.parametrize(
    "rules",
    [
        (),
        (rule("a"),),
        (rule("a"), rule("b", mode=Mode.SHADOW), Rule(id="free", route="/free", mode=Mode.EXEMPT)),
        (rule("a", identifier_type=("ip",)), rule("b", identifier_type="ip")),
        (rule("a", identifier_type="header:X-Team"), rule("b", identifier_type="header:x-team")),
        (rule("a", on_missing=OnMissing.DENY), rule("b", on_missing=OnMissing.DENY, overrides={"vip": 99})),
        (
            rule("a", "/users/{id}", identifier_type="path:id"),
            rule("b", "/groups/{who}/posts", identifier_type="path:who"),
        ),
    ],
)
def test_rules_that_count_the_same_identifier_can_be_spread(rules: tuple[Rule, ...]) -> None:
    """However it is named; those that count nothing do not matter."""
    assert Client(id="c", rules=rules, shard_by=ShardBy.IDENTIFIER).rules == rules


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"identifier_type": "ip"},
            "expected the same identifier_type in all rules that count, 'a' (/users/{id}) has user_id, "
            "'b' (/*) has ip",
        ),
        (
            {"identifier_type": ("user_id", "ip"), "mode": Mode.SHADOW},
            "expected the same identifier_type in all rules that count, 'a' (/users/{id}) has user_id, "
            "'b' (/*) has user_id, ip",
        ),
        (
            {"on_missing": OnMissing.SHARED},
            "expected the same on_missing in all rules that count, 'a' (/users/{id}) has left out, "
            "'b' (/*) has shared",
        ),
        (
            {"identifier_type": "none"},
            "expected rules that tell callers apart, 'b' (/*) counts everyone together",
        ),
        ({"max_identifiers": 5}, "expected rules without max_identifiers, 'b' (/*) has 5"),
    ],
)
def test_rules_that_could_count_two_identifiers_cannot_be_spread(other: dict[str, Any], message: str) -> None:
    """Their counters could be on two servers, and would not be charged in one step."""
    assert problems(rule("a", "/users/{id}"), rule("b", **other)) == [message]


def test_a_segment_is_the_same_identifier_only_at_the_same_place() -> None:
    """Whatever its name."""
    rules = rule("a", "/{id}/x", identifier_type="path:id"), rule("b", "/a/{id}", identifier_type="path:id")
    (message,) = problems(*rules)
    assert message.endswith(
        "'a' (/{id}/x) has segment 1 of the path, 'b' (/a/{id}) has segment 2 of the path"
    )


@pytest.mark.parametrize(
    ("who", "identifier"),
    [
        ({"user_id": "ann"}, "=ann"),
        ({"address": ip_address("192.0.2.7")}, "~ip=192.0.2.7"),
    ],
)
def test_all_checks_of_a_request_have_the_tag_of_its_identifier(who: dict[str, Any], identifier: str) -> None:
    """Also where it is missing, is held to a limit of its own, or is only watched."""
    checks = checks_of(
        rule("a"), rule("b", window_seconds=7, mode=Mode.SHADOW), rule("c", overrides={"ann": 99}), **who
    )
    assert [check.identifier for check in checks] == [identifier] * 3
    assert {check.tag for check in checks} == {"c" + shard_of(identifier)}


def test_what_only_would_be_refused_goes_with_the_rest() -> None:
    """A block rule that is watched counts nobody, and is reported together with what is counted."""
    rules = Rule(id="block", route="/*", mode=Mode.BLOCK), rule("a")
    watched = Policy(enforcement=Enforcement.SHADOW)
    for checks in (
        checks_of(*rules, policy=watched, user_id="ann"),
        checks_of(*rules[::-1], policy=watched, user_id="ann"),
    ):
        assert {check.rule.id for check in checks} == {"a", "block"}
        assert {check.tag for check in checks} == {"c" + shard_of("=ann")}
    (alone,) = checks_of(rules[0], policy=watched)
    assert alone.tag == "c"


def test_a_client_that_is_not_spread_has_one_tag() -> None:
    """Its id."""
    assert Client(id="c").shard_by is ShardBy.CLIENT
    assert check(client_id="c", identifier="=ann").tag == "c"


def test_an_identifier_has_the_same_shard_in_every_version() -> None:
    """Its counter is found by it, so it is written down here."""
    found = {text: shard_of(text) for text in ("=ann", "=bob", "~ip=2001:db8::/64", "=ü")}
    assert found == {"=ann": "/01", "=bob": "/02", "~ip=2001:db8::/64": "/22", "=ü": "/43"}


def test_identifiers_are_spread_evenly() -> None:
    """Those that differ little, too."""
    for name in ("={}", "=user-{}", "=10.0.0.{}", "~ip=2001:db8:{:x}::/64"):
        shards = [shard_of(name.format(number)) for number in range(256)]
        assert all(8 <= shards.count(shard) <= 24 for shard in SHARDS)


def test_every_client_has_a_shard_in_each_sixteenth_of_the_slots() -> None:
    """So whichever servers a cluster has, up to sixteen that share the slots evenly, each has its part."""
    some = random.Random(7)
    names = ["".join(some.choices(IDS, k=some.randint(1, 64))) for _ in range(200)]
    for name in ("c", "mon-service", *names):
        slots = [key_slot((name + shard).encode()) for shard in SHARDS]
        assert sorted(slot * 16 // REDIS_CLUSTER_HASH_SLOTS for slot in slots) == list(range(16))


def test_no_two_clients_share_a_tag() -> None:
    """An id has no slash, so what stands before it is the whole id."""
    for shard in SHARDS:
        with pytest.raises(InvalidValue):
            Client(id="c" + shard)
