"""The evaluate API as tables: a body becomes a request or its problems, a decision an answer."""

import json
from ipaddress import ip_address
from typing import Any

import pytest

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.dialects import evaluate
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.validation import Malformed, Rejected
from tests.decisions import allowed, refused, without_numbers

EXAMPLE: dict[str, Any] = {
    "client_id": "mon-service",
    "route": "/api/videos",
    "method": "GET",
    "identifier": {"type": "session_id", "session_id": "user-abc-123"},
}


def read(body: Any) -> RequestMetadata:
    return evaluate.read(json.dumps(body).encode(), "id")


def with_identifier(**fields: Any) -> dict[str, Any]:
    return {**EXAMPLE, "identifier": fields}


def problems(body: Any) -> dict[str, str]:
    with pytest.raises(Rejected) as caught:
        read(body)
    return dict(caught.value.problems)


def test_the_api_documents_example_is_a_request() -> None:
    """Field by field; what it leaves out is unknown, nobody said an address, its cost is 1."""
    assert read(EXAMPLE) == RequestMetadata(
        method="GET",
        target="/api/videos",
        client_id="mon-service",
        has_address=False,
        session_id="user-abc-123",
        request_id="id",
    )


def test_everything_that_a_caller_may_say_arrives() -> None:
    """Several parts of an identifier at once, host and header names in their canonical form."""
    identifier = {
        "type": "none",
        "session_id": "s",
        "ip": "[2001:db8::1]:80",
        "user_agent": "ua",
        "user_id": "7",
    }
    more = {"host": "API.example.com:80", "headers": {"X-Plan": "gold"}, "cost": 3}
    assert read({**EXAMPLE, "identifier": identifier, **more}) == RequestMetadata(
        method="GET",
        target="/api/videos",
        host="api.example.com",
        client_id="mon-service",
        address=ip_address("2001:db8::1"),
        session_id="s",
        user_id="7",
        user_agent="ua",
        headers={"x-plan": "gold"},
        cost=3,
        request_id="id",
    )


@pytest.mark.parametrize("cost", [0, 1, 2**53])
def test_a_cost_is_taken_as_it_is(cost: int) -> None:
    """0 asks without charging."""
    assert read({**EXAMPLE, "cost": cost}).cost == cost


@pytest.mark.parametrize(
    "identifier",
    [
        {"type": "none"},
        {"type": "none", "session_id": None, "ip": None, "user_agent": None, "user_id": None},
        {"type": "none", "session_id": "", "ip": "", "user_agent": "", "user_id": ""},
    ],
)
def test_null_and_empty_are_unknown(identifier: dict[str, Any]) -> None:
    """All three ways to say nothing are the same."""
    asked = read(with_identifier(**identifier))
    assert (asked.session_id, asked.address, asked.user_agent, asked.user_id) == (None, None, None, None)


@pytest.mark.parametrize(
    ("identifier", "wrong"),
    [
        ({}, {"identifier.type"}),
        ({"type": "session"}, {"identifier.type"}),
        ({"type": "header:X-Key"}, {"identifier.type"}),
        ({"type": None}, {"identifier.type"}),
        ({"type": "session_id"}, {"identifier.session_id"}),
        ({"type": "session_id", "session_id": None}, {"identifier.session_id"}),
        ({"type": "session_id", "session_id": ""}, {"identifier.session_id"}),
        ({"type": "session_id", "session_id": 7}, {"identifier.session_id"}),
        ({"type": "session_id", "user_id": "7"}, {"identifier.session_id"}),
        ({"type": "ip_user_agent"}, {"identifier.ip", "identifier.user_agent"}),
        ({"type": "ip_user_agent", "ip": "192.0.2.1"}, {"identifier.user_agent"}),
        ({"type": "ip_user_agent", "user_agent": "x", "ip": "nowhere"}, {"identifier.ip"}),
        ({"type": "ip"}, {"identifier.ip"}),
        ({"type": "user_id"}, {"identifier.user_id"}),
        ({"type": "user_id", "user_id": 7}, {"identifier.user_id"}),
        ({"type": "none", "ip": "nowhere"}, {"identifier.ip"}),
        ({"type": "none", "ip": ["192.0.2.1"]}, {"identifier.ip"}),
        ({"type": "none", "sesion_id": "x"}, {"identifier.sesion_id"}),
        ({"type": "none", "user_agent": "x" * 65537}, {"identifier.user_agent"}),
    ],
)
def test_the_type_says_which_part_is_required(identifier: dict[str, Any], wrong: set[str]) -> None:
    """Each part that is missing or wrong is named."""
    assert set(problems(with_identifier(**identifier))) == wrong


@pytest.mark.parametrize("value", [None, 7, 1.5, True, [], {}, "", "x" * 65537])
@pytest.mark.parametrize("field", ["client_id", "route", "method"])
def test_a_text_that_is_none_or_too_long_is_named(field: str, value: Any) -> None:
    """Nothing is converted."""
    assert set(problems({**EXAMPLE, field: value})) == {field}


WRONG: dict[str, list[Any]] = {
    "client_id": ["a b", "a/b", "é", "a\n", "x" * 65, "{a}", "a:b"],
    "method": ["x" * 65],
    "identifier": [None, "session_id", 7, [], True],
    "host": [None, 7, [], {}, True, "x" * 65537],
    "headers": [None, 7, "a: b", [["a", "b"]], True, {f"h{n}": "" for n in range(257)}],
    "cost": [None, "1", 1.0, 1.5, True, [], {}, -1, 2**53 + 1, 2**64, 10**400],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_any_other_wrong_field_is_named(field: str, value: Any) -> None:
    """Beyond 2^53 a number is none that everyone can read."""
    assert set(problems({**EXAMPLE, field: value})) == {field}


@pytest.mark.parametrize("value", [None, 7, ["a"], {}])
def test_a_header_value_that_is_no_text_is_named_with_its_header(value: Any) -> None:
    assert set(problems({**EXAMPLE, "headers": {"X-Good": "a", "X-Bad": value}})) == {"headers.X-Bad"}


def test_all_wrong_fields_are_named_at_once() -> None:
    """Callers fix everything in one go; a key that nobody knows is one of the problems."""
    body = {"client_id": 7, "route": "", "identifier": {"type": "x"}, "cost": "1", "costs": 1, "host": None}
    found = problems(body)
    assert set(found) == {"client_id", "route", "method", "identifier.type", "cost", "costs", "host"}
    assert found["method"] == "is required"
    assert found["costs"] == "unknown key; did you mean cost?"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"{]",
        b"nothing",
        b"{}{}",
        b"{},{}",
        b'{"client_id": "a",}',
        b"\xff\xfe",
        b'{"client_id": "\xff"}',
        b"'{}'",
        b"\x00",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b'[{"client_id": "a"}]',
    ],
)
def test_what_is_no_json_object_is_malformed(text: bytes) -> None:
    """A 400, not a list of fields."""
    with pytest.raises(Malformed):
        evaluate.read(text, "id")


def test_deep_nesting_is_refused_and_breaks_nothing() -> None:
    """A body of brackets is no way to end a process."""
    with pytest.raises((Malformed, Rejected)):
        evaluate.read(b"[" * 100_000, "id")
    with pytest.raises((Malformed, Rejected)):
        evaluate.read(b'{"identifier": ' + b'{"a":' * 50_000, "id")


def test_text_that_utf_8_cannot_write_is_an_answer_and_no_crash() -> None:
    """A lone surrogate in JSON is either refused or kept as it is."""
    text = json.dumps({**EXAMPLE, "route": "/\ud800"}).encode()
    with pytest.raises((Malformed, Rejected)):
        evaluate.read(text, "id")


@pytest.mark.parametrize(
    ("decision", "status", "fields"),
    [
        (
            allowed(used=3, reset_us=60_000_000),
            200,
            (True, 10, 7, "2024-01-15T10:01:00Z", None, "r", "allowed"),
        ),
        (
            refused(retry_us=23_000_000, reset_us=60_000_000),
            429,
            (False, 10, 0, "2024-01-15T10:01:00Z", 23, "r", "quota_exceeded"),
        ),
        (
            refused(retry_us=None, reset_us=60_000_000),
            429,
            (False, 10, 0, "2024-01-15T10:01:00Z", None, "r", "quota_exceeded"),
        ),
        (
            refused(retry_us=1, reset_us=1),
            429,
            (False, 10, 0, "2024-01-15T10:00:01Z", 1, "r", "quota_exceeded"),
        ),
        (without_numbers(Reason.NO_POLICY, allow=True), 200, (True, *[None] * 5, "no_policy")),
        (without_numbers(Reason.EXEMPT, allow=True, rule_id="e"), 200, (True, *[None] * 5, "exempt")),
        (
            without_numbers(Reason.STORAGE_UNAVAILABLE, allow=True),
            200,
            (True, *[None] * 5, "storage_unavailable"),
        ),
        (
            without_numbers(Reason.STORAGE_UNAVAILABLE, allow=False, rule_id="d"),
            503,
            (False, *[None] * 5, "storage_unavailable"),
        ),
        (
            without_numbers(Reason.BLOCKED, allow=False, rule_id="b"),
            403,
            (False, *[None] * 4, "b", "blocked"),
        ),
        (without_numbers(Reason.ENFORCEMENT_OFF, allow=True), 200, (True, *[None] * 5, "enforcement_off")),
    ],
)
def test_an_answer_has_the_documents_fields_in_its_order(
    decision: Decision, status: int, fields: tuple[Any, ...]
) -> None:
    """Nulls where there is nothing to say, never invented numbers."""
    answer = evaluate.write(decision, ResponseOptions())
    names = ["allowed", "limit", "remaining", "reset_at", "retry_after", "rule_id", "reason"]
    assert answer.status == status
    assert list(json.loads(answer.body).items()) == list(zip(names, fields, strict=True))
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("decision", "retry"),
    [
        (refused(retry_us=23_000_000), "23"),
        (refused(retry_us=None), None),
        (allowed(), None),
        (without_numbers(Reason.BLOCKED, allow=False, rule_id="b"), None),
    ],
)
def test_retry_after_is_a_header_where_it_is_a_number(decision: Decision, retry: str | None) -> None:
    """A caller that reads headers only learns the same."""
    assert evaluate.write(decision, ResponseOptions()).headers.get("Retry-After") == retry
