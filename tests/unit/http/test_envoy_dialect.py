"""Envoy's dialect as tables: a call becomes a request, a decision an answer."""

import json

import pytest

from sidecar.domain.decision import Counted, Decision, Reason, Usage, decide
from sidecar.infrastructure.http.dialects import envoy
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Call
from sidecar.infrastructure.http.sources import Sources
from tests.decisions import NOW_US, allowed, check, refused, rule, without_numbers

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


DEGRADED = {"X-RateLimit-Degraded": "storage_unavailable"}


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("api.example.com", "api.example.com"),
        ("API.Example.COM", "api.example.com"),
        ("api.example.com:8443", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("api.example.com.:443", "api.example.com"),
        ("api.example.com:", "api.example.com"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("[2001:db8::1]:8443", "[2001:db8::1]"),
        ("", ""),
        (" api.example.com ", "api.example.com"),
        ("api.example.com,other.example.com", "api.example.com,other.example.com"),
    ],
)
def test_the_host_is_compared_without_port_case_and_final_dot(written: str, host: str) -> None:
    """And several hosts are none that a client could have."""
    assert envoy.read(Call("GET", "/", {"host": written}), Sources()).host == host


def test_method_and_target_are_those_of_the_request_line() -> None:
    """No header that claims another one is looked at."""
    claims = {
        "x-http-method-override": "GET",
        "x-original-method": "GET",
        "x-original-uri": "/free",
        "x-original-url": "/free",
        "x-forwarded-method": "GET",
        "x-forwarded-uri": "/free",
        "x-forwarded-host": "free.example",
        "x-envoy-original-path": "/free",
        "x-rewrite-url": "/free",
        "host": "api.example.com",
    }
    read = envoy.read(Call("DELETE", "/a%2Fb?cost=0#x", claims, request_id="id"), Sources())
    assert (read.method, read.target, read.host) == ("DELETE", "/a%2Fb?cost=0#x", "api.example.com")
    assert (read.cost, read.request_id, read.headers) == (1, "id", claims)


def test_a_call_without_any_header_is_a_request() -> None:
    """Unknown is unknown; whether that matters is for the rules to say."""
    read = envoy.read(Call("OPTIONS", "*", {}, client_id="pinned"), Sources())
    assert (read.method, read.target, read.host, read.client_id) == ("OPTIONS", "*", "", "pinned")
    assert (read.address, read.session_id, read.user_id, read.user_agent) == (None, None, None, None)


@pytest.mark.parametrize(
    ("decision", "headers"),
    [
        (
            allowed(used=1, reset_us=60_000_000),
            {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "60"},
        ),
        (without_numbers(Reason.NO_POLICY, allow=True), {}),
        (without_numbers(Reason.EXEMPT, allow=True, rule_id="r"), {}),
        (without_numbers(Reason.ENFORCEMENT_OFF, allow=True), {}),
        (without_numbers(Reason.ALLOWED, allow=True), {}),
        (without_numbers(Reason.STORAGE_UNAVAILABLE, allow=True), DEGRADED),
    ],
)
def test_allowed_is_200_with_nothing_in_it(decision: Decision, headers: dict[str, str]) -> None:
    """Any other status would end the request at Envoy; numbers are there only where there are some."""
    answer = envoy.write(decision, ResponseOptions())
    assert (answer.status, answer.headers, answer.body) == (200, headers, b"")


def test_a_refusal_says_what_when_and_by_which_rule() -> None:
    """Every header and every member of the body."""
    answer = envoy.write(refused(retry_us=23_000_000, reset_us=12_000_000), ResponseOptions())
    assert answer.status == 429
    assert answer.headers == {
        "X-RateLimit-Limit": "10",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "12",
        "X-RateLimit-Rule": "r",
        "Cache-Control": "no-store",
        "Content-Type": "application/problem+json",
        "Retry-After": "23",
    }
    assert json.loads(answer.body) == {
        "type": QUOTA_EXCEEDED,
        "title": "Too Many Requests",
        "status": 429,
        "detail": "too many requests",
        "violated-policies": ["r"],
    }


@pytest.mark.parametrize(
    ("reason", "unavailable_status", "status"),
    [
        (Reason.BLOCKED, 503, 403),
        (Reason.IDENTIFIER_MISSING, 503, 403),
        (Reason.STORAGE_UNAVAILABLE, 503, 503),
        (Reason.STORAGE_UNAVAILABLE, 500, 500),
        (Reason.STORAGE_UNAVAILABLE, 419, 419),
    ],
)
def test_what_is_no_quota_has_a_status_of_its_own(
    reason: Reason, unavailable_status: int, status: int
) -> None:
    """No numbers, no Retry-After, and no word about quotas."""
    answer = envoy.write(
        without_numbers(reason, allow=False, rule_id="b"),
        ResponseOptions(unavailable_status=unavailable_status),
    )
    assert answer.status == status
    assert answer.headers == {
        "X-RateLimit-Rule": "b",
        "Cache-Control": "no-store",
        "Content-Type": "application/problem+json",
        **(DEGRADED if reason is Reason.STORAGE_UNAVAILABLE else {}),
    }
    body = json.loads(answer.body)
    assert (body["type"], body["status"], "violated-policies" in body) == ("about:blank", status, False)
    assert body["detail"]
    assert body["title"]


def test_every_refusing_rule_is_named_and_the_longest_wait_shown() -> None:
    """One that would have let the request pass and one that only watches are not."""
    checks = [
        check(rule("short")),
        check(rule("long")),
        check(rule("fits")),
        check(rule("watching"), shadow=True),
    ]
    usages = [
        Usage(False, 10, 1_000_000, 1_000_000),
        Usage(False, 10, 5_000_000, 2_000_000),
        Usage(True, 1, 0, 9_000_000),
        Usage(False, 10, 60_000_000, 60_000_000),
    ]
    answer = envoy.write(decide(checks, Counted(False, NOW_US, usages)), ResponseOptions())
    assert json.loads(answer.body)["violated-policies"] == ["short", "long"]
    assert (answer.headers["X-RateLimit-Rule"], answer.headers["Retry-After"]) == ("long", "5")


def test_what_can_never_fit_is_told_to_wait_a_whole_window() -> None:
    """A proxy's clients need an integer, also where no waiting helps."""
    assert envoy.write(refused(retry_us=None), ResponseOptions()).headers["Retry-After"] == "60"


def test_headers_stay_short_whatever_ids_and_numbers_are() -> None:
    """Names of 64 characters and the largest numbers: far below the 4 KiB that NGINX buffers."""
    largest = rule("r" * 64, limit=100_000, window_seconds=1, identifier_type="header:X-Long")
    checks = [check(rule(f"{n:064}")) for n in range(63)] + [check(largest, identifier="=" + "x" * 128)]
    usages = [Usage(False, 2**53, 365 * 24 * 3600 * 10**6, 365 * 24 * 3600 * 10**6)] * 64
    answer = envoy.write(decide(checks, Counted(False, NOW_US, usages)), ResponseOptions())
    written = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    assert len(written) < 1024
