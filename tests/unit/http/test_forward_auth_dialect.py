"""The dialect of forward authentication as tables: a call becomes a request, a decision an answer."""

import json

import pytest

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.refusal import Refusal
from sidecar.infrastructure.http.dialects import forward_auth
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Call
from sidecar.infrastructure.http.sources import Sources
from tests.decisions import allowed, check, refused, rule, without_numbers

ASKED = {
    "x-forwarded-method": "DELETE",
    "x-forwarded-uri": "/a%2Fb?cost=0#x",
    "x-forwarded-host": "API.example.com:8443",
}


def test_method_target_and_host_are_those_that_the_proxy_says() -> None:
    """Not those of the request to the sidecar, which is a GET of its own path with the client's query."""
    call = Call("GET", "/forward-auth?x=1", {**ASKED, "host": "127.0.0.1:8000"}, request_id="id")
    read = forward_auth.read(call, Sources())
    assert (read.method, read.target, read.host) == ("DELETE", "/a%2Fb?cost=0#x", "api.example.com")
    assert (read.cost, read.request_id) == (1, "id")


def test_no_other_header_says_method_target_or_host() -> None:
    """Those of other proxies, and the names that only look like the right ones, are the client's."""
    claims = {
        "x-http-method-override": "GET",
        "x-original-method": "GET",
        "x-original-uri": "/free",
        "x-original-url": "http://free.example/free",
        "x-original-host": "free.example",
        "x_forwarded_uri": "/free",
        "x.forwarded.uri": "/free",
        "x_forwarded_method": "GET",
        "x_forwarded_host": "free.example",
        "x-forwarded-prefix": "/free",
        "x-forwarded-path": "/free",
        "x-rewrite-url": "/free",
        "forwarded": "host=free.example",
        "host": "free.example",
    }
    read = forward_auth.read(Call("GET", "", {**ASKED, **claims}), Sources())
    assert (read.method, read.target, read.host) == ("DELETE", "/a%2Fb?cost=0#x", "api.example.com")


def test_a_call_that_says_nothing_is_a_request() -> None:
    """It is none of the proxy's own request line either: that would be a route of the sidecar's."""
    read = forward_auth.read(Call("GET", "/forward-auth", {"host": "h"}, client_id="pinned"), Sources())
    assert (read.method, read.target, read.host, read.client_id) == ("", "", "", "pinned")
    assert (read.address, read.session_id, read.user_id, read.user_agent) == (None, None, None, None)


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("http://api.example.com/api/videos?x=1", "/api/videos?x=1"),
        ("HTTPS://api.example.com:8443/api/videos", "/api/videos"),
        ("http://api.example.com", "/"),
        ("http://api.example.com?x=1", "?x=1"),
        ("http:///api/videos", "/api/videos"),
        ("//api.example.com/api/videos", "//api.example.com/api/videos"),
        ("/http://api.example.com/api/videos", "/http://api.example.com/api/videos"),
        ("*", "*"),
        ("/x?to=http://api.example.com/", "/x?to=http://api.example.com/"),
    ],
)
def test_a_target_with_scheme_and_host_is_the_path_that_the_application_gets(
    written: str, target: str
) -> None:
    """A client may write them there; no rule would match, and all of them would be free."""
    call = Call("GET", "", {**ASKED, "x-forwarded-uri": written})
    assert forward_auth.read(call, Sources()).target == target


@pytest.mark.parametrize(
    ("decision", "headers"),
    [
        (
            allowed(used=1, reset_us=60_000_000),
            {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "60"},
        ),
        (without_numbers(Reason.NO_POLICY, allow=True), {}),
    ],
)
def test_allowed_is_200_with_nothing_in_it(decision: Decision, headers: dict[str, str]) -> None:
    """Caddy's recipe lets pass what is exactly that."""
    answer = forward_auth.write(decision, ResponseOptions())
    assert (answer.status, answer.headers, answer.body) == (200, headers, b"")


def test_a_refusal_is_the_answer_that_the_client_gets() -> None:
    """Every header and every member of the body; what a front Envoy would read is not there."""
    decision = refused(retry_us=23_000_000, reset_us=12_000_000)
    answer = forward_auth.write(decision, ResponseOptions(envoy_ratelimited=True))
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
    body = json.loads(answer.body)
    assert (body["status"], body["violated-policies"]) == (429, ["r"])


def test_a_rule_has_its_own_answer() -> None:
    """Status, body and content type; when to come back is said all the same."""
    own = rule("r", response=Refusal(status=420, body="calm down", content_type="text/x-calm"))
    answer = forward_auth.write(refused(retry_us=23_000_000, of=check(own)), ResponseOptions())
    assert (answer.status, answer.body) == (420, b"calm down")
    assert (answer.headers["Content-Type"], answer.headers["Retry-After"]) == ("text/x-calm", "23")


@pytest.mark.parametrize(
    ("reason", "status"),
    [(Reason.BLOCKED, 403), (Reason.IDENTIFIER_MISSING, 403), (Reason.STORAGE_UNAVAILABLE, 503)],
)
def test_what_is_no_quota_has_a_status_of_its_own(reason: Reason, status: int) -> None:
    """Both proxies hand on a 5xx like any other answer, so a rule's `deny` is the client's answer, too."""
    answer = forward_auth.write(without_numbers(reason, allow=False, rule_id="b"), ResponseOptions())
    assert (answer.status, "Retry-After" in answer.headers) == (status, False)
    assert json.loads(answer.body)["status"] == status
