"""The per-user, per-endpoint API as tables: a call becomes a user and an endpoint, a decision an answer."""

import json
from typing import Any

import pytest

from sidecar.application.user_rates import UserEndpoint, rate_rule
from sidecar.domain.decision import Decision, Reason
from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.http.dialects import ratelog
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Answer, Call
from sidecar.infrastructure.validation import Malformed, Rejected
from tests.decisions import allowed, check, refused, without_numbers

RATE = check(rate_rule(10, 60), client_id="/rate")
NULLS = dict.fromkeys(("limit", "remaining", "reset", "retry_after"))


def read_check(body: bytes, user: str | None = "1") -> UserEndpoint:
    headers = {} if user is None else {"x-user-id": user}
    return ratelog.read_check(Call("POST", "/rate/check", headers, body=body))


def read_status(query: str, user: str | None = "1") -> UserEndpoint:
    headers = {} if user is None else {"x-user-id": user}
    return ratelog.read_status(Call("GET", f"/rate/status{query}", headers))


def endpoint(value: Any) -> bytes:
    return json.dumps({"endpoint": value}).encode()


def fields(answer: Answer) -> Any:
    assert answer.headers["Content-Type"] == "application/json"
    return json.loads(answer.body)


USERS = [
    ("1", 1),
    ("01", 1),
    ("0" * 5000 + "7", 7),
    (str(2**63 - 1), 2**63 - 1),
    (str(2**63), None),
    ("9" * 19, None),
    ("1" * 20, None),
    ("9" * 5000, None),
    ("0", None),
    ("00", None),
    ("-1", None),
    ("+1", None),
    (" 1", None),
    ("1 ", None),
    ("1\n", None),
    ("1.0", None),
    ("1e3", None),
    ("0x1", None),
    ("1_000", None),
    ("1,2", None),
    ("abc", None),
    ("١٢", None),
    ("²", None),
    ("１", None),
    ("\udcd9\udca1", None),
    ("1' OR '1'='1", None),
    ("", None),
    (None, None),
]


@pytest.mark.parametrize(("written", "user"), USERS)
def test_a_user_is_a_positive_number_in_ascii_digits(written: str | None, user: int | None) -> None:
    """Both calls read it alike, before they look at the endpoint; leading zeros name the same user."""
    if user is None:
        with pytest.raises(Malformed, match="X-User-Id: expected"):
            read_check(b"{}", written)
        with pytest.raises(Malformed, match="X-User-Id: expected"):
            read_status("", written)
    else:
        assert read_check(endpoint("x"), written) == UserEndpoint(user, "x")
        assert read_status("?endpoint=x", written) == UserEndpoint(user, "x")


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"[]", b"null", b'"x"', b"7", b"endpoint=x", b'{"a": \xff}']
)
def test_no_json_object_is_malformed(body: bytes) -> None:
    """Before anything is said about the endpoint."""
    with pytest.raises(Malformed):
        read_check(body)


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        (b"{}", {"endpoint": "is required"}),
        (endpoint(""), {"endpoint": "expected 1 to 128 characters, got 0"}),
        (endpoint("x" * 129), {"endpoint": "expected 1 to 128 characters, got 129"}),
        (endpoint("é" * 129), {"endpoint": "expected 1 to 128 characters, got 129"}),
        (endpoint(7), {"endpoint": "expected a string, got 7"}),
        (endpoint(None), {"endpoint": "expected a string, got null"}),
        (endpoint(["x"]), {"endpoint": "expected a string, got a list"}),
        (
            b'{"endpoints": "x"}',
            {"endpoint": "is required", "endpoints": "unknown key; did you mean endpoint?"},
        ),
    ],
)
def test_a_wrong_endpoint_in_a_body_is_named(body: bytes, problems: dict[str, str]) -> None:
    """With what was expected."""
    with pytest.raises(Rejected) as caught:
        read_check(body)
    assert dict(caught.value.problems) == problems


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "is required"),
        ("?", "is required"),
        ("?Endpoint=x", "is required"),
        ("?endpoint", "expected 1 to 128 characters, got 0"),
        ("?endpoint=", "expected 1 to 128 characters, got 0"),
        (f"?endpoint={'x' * 129}", "expected 1 to 128 characters, got 129"),
        ("?endpoint=a&endpoint=b", "expected it once, got it 2 times"),
        ("?endpoint=a&endpoint=", "expected it once, got it 2 times"),
        ("?endpoint=%FF", "expected text in UTF-8"),
        ("?endpoint=\udcff", "expected text in UTF-8"),
    ],
)
def test_a_wrong_endpoint_in_a_query_is_named(query: str, problem: str) -> None:
    """Also where it could be read in two ways."""
    with pytest.raises(InvalidValue) as caught:
        read_status(query)
    assert caught.value.problems == (("endpoint", problem),)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("/api/videos", "/api/videos"),
        ("%2Fapi%2Fvideos", "/api/videos"),
        ("a+b", "a b"),
        ("a%2Bb", "a+b"),
        ("a%26endpoint=b", "a&endpoint=b"),
        ("a=b", "a=b"),
        ("%C3%A9&other=1", "é"),
        ("x" * 128, "x" * 128),
        ("%F0%9F%98%80" * 128, "😀" * 128),
        ("%00", "\0"),
        ("'%3B%20DROP%20TABLE%20rate_events%3B--", "'; DROP TABLE rate_events;--"),
    ],
)
def test_a_query_and_a_body_can_name_the_same_endpoints(query: str, text: str) -> None:
    """An endpoint is text, and taken as it is."""
    assert read_status(f"?endpoint={query}") == read_check(endpoint(text)) == UserEndpoint(1, text)


def test_a_check_that_passes_is_200() -> None:
    """Fields in the contract's order, headers as elsewhere."""
    answer = ratelog.write_check(allowed(used=3, reset_us=1, of=RATE), ResponseOptions())
    assert list(fields(answer).items()) == [
        ("status", "ok"),
        ("limit", 10),
        ("remaining", 7),
        ("reset", 1),
        ("retry_after", None),
    ]
    assert (answer.status, answer.headers) == (
        200,
        {
            "X-RateLimit-Limit": "10",
            "X-RateLimit-Remaining": "7",
            "X-RateLimit-Reset": "1",
            "Content-Type": "application/json",
        },
    )


def test_a_check_over_the_limit_is_429() -> None:
    """Seconds are rounded up, and waiting takes at least one."""
    answer = ratelog.write_check(
        refused(retry_us=22_000_001, reset_us=22_000_001, of=RATE), ResponseOptions()
    )
    assert fields(answer) == {
        "status": "rate_limited",
        "limit": 10,
        "remaining": 0,
        "reset": 23,
        "retry_after": 23,
    }
    assert (answer.status, answer.headers) == (
        429,
        {
            "X-RateLimit-Limit": "10",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "23",
            "X-RateLimit-Rule": "check",
            "Retry-After": "23",
            "Cache-Control": "no-store",
            "Content-Type": "application/json",
        },
    )


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (
            allowed(used=3, of=RATE),
            {"status": "ok", "remaining": 7, "reset": 60, "retry_after": None, "count": 3},
        ),
        (
            refused(of=RATE),
            {"status": "rate_limited", "remaining": 0, "reset": 23, "retry_after": 23, "count": 10},
        ),
    ],
)
def test_a_look_is_200_whatever_a_check_would_get(decision: Decision, expected: dict[str, Any]) -> None:
    """With the count beside it, no `Retry-After`, and never from a cache."""
    answer = ratelog.write_status(decision, ResponseOptions())
    assert (answer.status, fields(answer)) == (200, {"limit": 10, **expected})
    assert "Retry-After" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("reason", [Reason.STORAGE_UNAVAILABLE, Reason.ENFORCEMENT_OFF, Reason.ALLOWED])
def test_without_numbers_none_are_invented(reason: Reason) -> None:
    """Whether the store is away, or nothing is enforced."""
    decision = without_numbers(reason, allow=True)
    checked, looked = (
        ratelog.write_check(decision, ResponseOptions()),
        ratelog.write_status(decision, ResponseOptions()),
    )
    assert (checked.status, fields(checked)) == (200, {"status": "ok", **NULLS})
    assert (looked.status, fields(looked)) == (200, {"status": "ok", **NULLS, "count": None})


@pytest.mark.parametrize("write", [ratelog.write_check, ratelog.write_status])
def test_a_store_that_is_away_denies_with_the_configured_status(write: Any) -> None:
    """As a problem: neither `ok` nor `rate_limited` would be true."""
    answer = write(
        without_numbers(Reason.STORAGE_UNAVAILABLE, allow=False, rule_id="check"),
        ResponseOptions(unavailable_status=502),
    )
    assert (answer.status, answer.headers["Content-Type"]) == (502, "application/problem+json")
    assert json.loads(answer.body)["status"] == 502
    assert "Retry-After" not in answer.headers
