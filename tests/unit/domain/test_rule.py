"""Rules check themselves: every problem at once, each under its field."""

import re
from typing import Any

import pytest

from sidecar.domain.algorithms import MAX_INTEGER, Algorithm
from sidecar.domain.errors import InvalidValue
from sidecar.domain.rule import YEAR_SECONDS, Mode, Rule

GOOD: dict[str, Any] = {
    "id": "r",
    "route": "/users/{id}",
    "identifier_type": "session_id",
    "limit": 10,
    "window_seconds": 60,
}
BUCKET = {"algorithm": Algorithm.TOKEN_BUCKET}


def rule(**fields: Any) -> Rule:
    return Rule(**{**GOOD, **fields})


def problems(**fields: Any) -> dict[str, str]:
    """Field → message, of a rule that is good but for these fields."""
    with pytest.raises(InvalidValue) as caught:
        rule(**fields)
    return dict(caught.value.problems)


BAD: list[tuple[str, list[Any]]] = [
    ("id", ["a b", "x" * 65, "ä", "a/b", "a\n"]),
    ("route", ["", "users", "/a?b", "/a*b", "/{a}/{a}"]),
    ("method", ["get", "", (), "GET,POST", "G T", ("GET", "post"), "M" * 65]),
    (
        "identifier_type",
        [
            *(None, (), "", "session", "path:name", ("ip", "nobody"), "header:"),
            *(("ip", "none"), ("none", "none"), ("ip", "ip"), ("header:X-A", "ip", "header:x-a")),
        ],
    ),
    ("limit", [None, 0, -1, True, 1.5, "10", MAX_INTEGER + 1, 100_001]),
    ("window_seconds", [None, 0, -1, True, 0.5, YEAR_SECONDS + 1]),
    ("burst", [5]),
    ("cost", [0, -1, True, 1.5, 11, MAX_INTEGER + 1]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, bad in BAD for value in bad])
def test_a_bad_value_is_refused_under_its_own_field(name: str, value: Any) -> None:
    """And under no other."""
    assert set(problems(**{name: value})) == {name}


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "all", MAX_INTEGER + 1, 100_001, None])
def test_a_bad_override_is_refused_under_its_name(value: Any) -> None:
    """It is a limit like the rule's own, or one of two words."""
    assert set(problems(overrides={"good": 5, "vip": value})) == {"overrides.vip"}


def test_an_override_below_the_cost_is_refused() -> None:
    """Nothing of that identifier could pass, which `block` says in plain sight."""
    assert set(problems(cost=3, overrides={"a": 2, "b": 3})) == {"overrides.a"}
    assert rule(cost=3, burst=5, overrides={"a": 2}, **BUCKET).terms(2).capacity == 5


def test_all_problems_are_told_at_once() -> None:
    """A person mends a rule in one go, those of its overrides included."""
    wrong: dict[str, Any] = {
        "id": "a b",
        "route": "users",
        "method": "get",
        "identifier_type": None,
        "limit": 0,
        "window_seconds": None,
        "burst": 3,
        "cost": 0,
        "overrides": {"vip": "all"},
    }
    assert set(problems(**wrong)) == {*wrong, "overrides.vip"} - {"overrides"}
    with pytest.raises(InvalidValue, match=r"limit: expected at least 1, got 0"):
        rule(**wrong)


@pytest.mark.parametrize("mode", [Mode.EXEMPT, Mode.BLOCK])
def test_a_rule_that_counts_nothing_needs_and_takes_no_numbers(mode: Mode) -> None:
    """A limit on it would be a misunderstanding."""
    assert Rule(route="/*", mode=mode).terms().limit == 0
    named = {"limit", "window_seconds", "identifier_type", "burst", "overrides"}
    assert set(problems(mode=mode, burst=1, overrides={"a": 1})) == named


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"id": "x" * 64},
        {"method": "PROPFIND"},
        {"method": ("GET", "HEAD")},
        {"method": "M-SEARCH"},
        {"identifier_type": "path:id"},
        {"identifier_type": ("ip", "header:X-Tenant")},
        {"identifier_type": ("cookie:a", "cookie:A", "header:a")},
        {"identifier_type": ("none",)},
        {"limit": 1, "window_seconds": YEAR_SECONDS},
        {"cost": 10},
        {"overrides": {"a": 1, "b": "block", "c": "unlimited"}},
        {"burst": 100, "cost": 100, **BUCKET},
        {"burst": 1, **BUCKET},
    ],
)
def test_a_good_value_is_taken(fields: dict[str, Any]) -> None:
    """Up to the bounds."""
    assert all(getattr(rule(**fields), name) == value for name, value in fields.items())


LARGE = [(Algorithm.SLIDING_WINDOW, window, MAX_INTEGER) for window in (1, YEAR_SECONDS)] + [
    (algorithm, window, MAX_INTEGER - less)
    for algorithm in (Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.TOKEN_BUCKET)
    for window in (1, 7, 60, 86_400, YEAR_SECONDS)
    for less in (1, 2)
]


def largest_named(message: str) -> int:
    found = re.search(r"that works is (\d+)$", message)
    assert found
    return int(found[1])


@pytest.mark.parametrize(("algorithm", "window", "limit"), LARGE)
def test_the_largest_limit_that_an_error_names_works(algorithm: Algorithm, window: int, limit: int) -> None:
    """And one more does not."""
    fields = {"algorithm": algorithm, "window_seconds": window}
    message = problems(limit=limit, **fields)["limit"]
    largest = largest_named(message)
    assert rule(limit=largest, **fields).limit == largest
    assert set(problems(limit=largest + 1, **fields)) == {"limit"}


@pytest.mark.parametrize(
    ("window", "limit"), [(1, 10**13 + 1), (7, 10**12 + 1), (60, 10**10 + 7), (86_400, 10**6 + 7)]
)
def test_no_token_bucket_limit_between_the_largest_named_and_the_wanted_works(
    window: int, limit: int
) -> None:
    """Which limits work depends on their divisors, so the next one may be far below."""
    fields = {"window_seconds": window, **BUCKET}
    largest = largest_named(problems(limit=limit, **fields)["limit"])
    assert rule(limit=largest, **fields).limit == largest
    for between in {
        *range(largest + 1, min(limit, largest + 100)),
        *range(max(largest + 1, limit - 100), limit),
    }:
        with pytest.raises(InvalidValue):
            rule(limit=between, **fields)


def test_the_largest_burst_that_an_error_names_works() -> None:
    """A burst is bounded by the parts in a token."""
    fields = {"limit": 7, "window_seconds": YEAR_SECONDS, **BUCKET}
    largest = largest_named(problems(burst=MAX_INTEGER, **fields)["burst"])
    assert rule(burst=largest, **fields).burst == largest
    assert set(problems(burst=largest + 1, **fields)) == {"burst"}


def test_fixed_window_counts_to_two_to_the_53() -> None:
    """Nothing is multiplied, so the doubles are the bound."""
    fixed = rule(algorithm=Algorithm.FIXED_WINDOW, limit=MAX_INTEGER, window_seconds=YEAR_SECONDS)
    assert fixed.limit == 2**53


NEW_COUNTERS: list[dict[str, Any]] = [
    *({"algorithm": algorithm} for algorithm in Algorithm if algorithm is not Algorithm.SLIDING_WINDOW),
    {"window_seconds": 61},
    {"identifier_type": "user_id"},
    {"identifier_type": ("session_id", "user_id")},
]


def test_the_generation_changes_with_algorithm_window_and_identifier_type() -> None:
    """Each of them begins counters of its own."""
    generations = [rule(**fields).generation for fields in [{}, *NEW_COUNTERS]]
    assert len(set(generations)) == len(generations)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "other"},
        {"route": "/*"},
        {"method": "GET"},
        {"mode": Mode.SHADOW},
        {"limit": 99},
        {"cost": 2},
        {"final": True},
        {"overrides": {"a": 1}},
        {"on_missing": "deny"},
        {"identifier_type": ("session_id",)},
    ],
)
def test_the_generation_changes_with_nothing_else(fields: dict[str, Any]) -> None:
    """Counters survive such a change."""
    assert rule(**fields).generation == rule().generation


def test_the_generation_is_the_same_in_every_process() -> None:
    """It is written down here, because counters of a running store are found by it."""
    assert rule().generation == "233a683e"


def test_a_raised_burst_keeps_the_generation() -> None:
    """A token bucket's counters stay when its burst changes."""
    assert rule(burst=5, **BUCKET).generation == rule(burst=50, **BUCKET).generation
