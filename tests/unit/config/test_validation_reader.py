"""JSON text to domain values, strictly, and back."""

import json

import pytest

from sidecar.domain.rule import Client, Mode, Rule
from sidecar.infrastructure.validation import Malformed, Rejected, body_reader, dump, reader

read_client = reader(Client)
RULE = {"route": "/x", "method": ["GET", "PUT"], "identifier_type": "ip", "limit": 5, "window_seconds": 60}


def test_what_is_dumped_reads_back_the_same() -> None:
    """Enums are text, tuples are lists, overrides keep their identifiers."""
    client = read_client(json.dumps({"id": "a", "rules": [RULE | {"overrides": {"10.0.0.1": "block"}}]}))
    dumped = dump(client)
    assert (dumped["enforcement"], dumped["rules"][0]["method"]) == ("on", ["GET", "PUT"])
    assert read_client(json.dumps(dumped).encode()) == client


def test_a_mode_is_read_as_the_domain_has_it() -> None:
    """The text of the file becomes the enum."""
    assert reader(Rule)('{"route": "/x", "mode": "exempt"}').mode is Mode.EXEMPT


def test_the_body_of_a_request_is_told_all_that_is_wrong_at_once() -> None:
    """The client's own fields and those of each rule, like the file loader does."""
    wrong_type = RULE | {"limit": "5", "method": "get"}
    body = {"id": "a b", "rules": [{"route": "x"}, wrong_type, 3, RULE | {"route": "/y"}]}
    with pytest.raises(Rejected) as caught:
        body_reader(Client)(json.dumps(body).encode())
    assert [field for field, _ in caught.value.problems] == [
        "id",
        "rules.0.route",
        "rules.0.identifier_type",
        "rules.0.limit",
        "rules.0.window_seconds",
        "rules.1.limit",
        "rules.1.method",
        "rules.2",
    ]


def test_what_follows_from_a_wrong_field_is_not_told_as_well() -> None:
    """Without its burst, the bucket could not hold the cost."""
    bucket = RULE | {"algorithm": "token_bucket", "burst": "50", "cost": 20, "overrides": {"10.0.0.1": 10}}
    with pytest.raises(Rejected) as caught:
        reader(Rule)(json.dumps(bucket))
    assert caught.value.problems == [("burst", "expected an integer, got '50'")]


def test_a_wrong_rule_is_not_taken_for_one_that_counts_somebody_else() -> None:
    """What it says of whom it counts is kept where it is right; rules that do differ are told of."""
    spread = {"id": "a", "shard_by": "identifier"}
    wrong, right = RULE | {"on_missing": "deny", "limit": 0}, RULE | {"route": "/y", "on_missing": "deny"}
    for rules in ([wrong, right], [right, wrong], [wrong | {"on_missing": "x"}, right]):
        with pytest.raises(Rejected) as caught:
            read_client(json.dumps(spread | {"rules": rules}))
        assert {field.rpartition(".")[2] for field, _ in caught.value.problems} <= {"limit", "on_missing"}
    with pytest.raises(Rejected) as caught:
        read_client(json.dumps(spread | {"rules": [right, RULE, wrong | {"route": "/z"}]}))
    assert [field for field, _ in caught.value.problems] == ["shard_by", "rules.2.limit"]


@pytest.mark.parametrize("text", ["", " ", "{", "{},", "{}, {}", "{}], [{}", b"\xff", "nil", "\ufeff{}"])
def test_what_is_no_json_is_malformed(text: bytes | str) -> None:
    """Not one JSON value: nothing can be said of its fields."""
    with pytest.raises(Malformed, match=r"^expected"):
        read_client(text)


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ([], [("", "expected an object, got a list")]),
        ({}, [("id", "is required")]),
        ({"id": 7}, [("id", "expected a string, got 7")]),
        ({"id": "a", "nam": ""}, [("nam", "unknown key; did you mean name?")]),
        (
            {"id": "a", "rules": [RULE | {"limit": True, "wndow": 1}]},
            [
                ("rules.0.limit", "expected an integer, got true"),
                ("rules.0.wndow", "unknown key"),
            ],
        ),
        (
            {"id": "a", "rules": [RULE | {"burst": 3, "overrides": {"10.0.0.1": "x"}}]},
            [
                ("rules.0.burst", "belongs to token_bucket; sliding_window has none"),
                ("rules.0.overrides.10.0.0.1", "expected a limit, 'block' or 'unlimited', got 'x'"),
            ],
        ),
        (
            {"id": "a", "rules": [RULE | {"identifier_type": {"a": 1}, "overrides": {"int": None}}]},
            [
                ("rules.0.identifier_type", "expected a string or a list, got an object"),
                ("rules.0.overrides.int", "expected an integer or a string, got null"),
            ],
        ),
    ],
)
def test_what_does_not_fit_is_rejected_field_by_field(value: object, problems: list[tuple[str, str]]) -> None:
    """One message for each field, whatever the branches of its type."""
    with pytest.raises(Rejected) as caught:
        read_client(json.dumps(value))
    assert caught.value.problems == problems
