"""The dialects of NGINX and ingress-nginx as tables: a call becomes a request, a decision an answer."""

from collections.abc import Callable

import pytest

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.refusal import Refusal
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.http.client_address import AddressSource
from sidecar.infrastructure.http.dialects import nginx
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.messages import Call
from sidecar.infrastructure.http.sources import Sources
from tests.decisions import allowed, check, refused, rule, without_numbers

#: What each of the two ignores of the other, and of everybody else.
CLAIMS = {
    "x-http-method-override": "GET",
    "x-forwarded-method": "GET",
    "x-forwarded-uri": "/free",
    "x-forwarded-host": "free.example",
    "x-auth-request-redirect": "/free",
    "x-rewrite-url": "/free",
    "x_original_uri": "/free",
    "x-original-host": "free.example",
}


def test_nginx_says_method_target_and_host_in_headers() -> None:
    """The request line is its own, and no other header that claims them is looked at."""
    headers = CLAIMS | {
        "host": "API.example.com:8443",
        "x-original-method": "DELETE",
        "x-original-uri": "/a%2Fb//c?cost=0",
        "x-original-url": "https://free.example/free",
    }
    read = nginx.read(Call("GET", "/free", headers, client_id="pinned", request_id="id"), Sources())
    assert (read.method, read.target, read.host) == ("DELETE", "/a%2Fb//c?cost=0", "api.example.com")
    assert (read.client_id, read.request_id, read.cost) == ("pinned", "id", 1)


def test_ingress_nginx_says_method_and_url_in_headers() -> None:
    """`Host` is the sidecar's own name there."""
    headers = CLAIMS | {
        "host": "ratelimit-sidecar.ratelimit.svc.cluster.local",
        "x-original-method": "DELETE",
        "x-original-url": "https://API.example.com:8443/a%2Fb//c?cost=0&u=http://x/",
        "x-original-uri": "/free",
    }
    read = nginx.read_ingress(Call("GET", "/free", headers, request_id="id"), Sources())
    assert (read.method, read.host) == ("DELETE", "api.example.com")
    assert read.target == "/a%2Fb//c?cost=0&u=http://x/"


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("http://h/", "h", "/"),
        ("http://h", "h", ""),
        ("http://h//x", "h", "//x"),
        ("http:///x", "", "/x"),
        ("http://[2001:db8::1]:80/x", "[2001:db8::1]", "/x"),
        ("http://a,b/x", "a,b", "/x"),
        ("/x", "", ""),
        ("/x?u=http://h/y", "", ""),
        ("h/x", "", ""),
        ("", "", ""),
    ],
)
def test_a_url_is_taken_apart_where_it_is_one(url: str, host: str, target: str) -> None:
    """What is none has no target, which the catch-all rules match."""
    read = nginx.read_ingress(Call("GET", "", {"x-original-url": url}), Sources())
    assert (read.host, read.target) == (host, target)


@pytest.mark.parametrize("read", [nginx.read, nginx.read_ingress])
def test_a_call_without_any_header_is_a_request(read: Callable[[Call, Sources], RequestMetadata]) -> None:
    """Unknown is unknown; whether that matters is for the rules to say."""
    request = read(Call("GET", "", {}), Sources())
    assert (request.method, request.target, request.host, request.address) == ("", "", "", None)


def test_the_address_is_where_the_dialects_proxy_writes_it() -> None:
    """For ingress-nginx without snippets that is X-Real-IP."""
    headers = {"x-client-ip": "9.9.9.9", "x-real-ip": "192.0.2.7", "x-forwarded-for": "8.8.8.8"}
    sources = Sources(address=AddressSource(header="x-real-ip"))
    assert str(nginx.read_ingress(Call("GET", "", headers), sources).address) == "192.0.2.7"
    assert str(nginx.read(Call("GET", "", headers), Sources()).address) == "9.9.9.9"


@pytest.mark.parametrize(
    ("decision", "headers"),
    [
        (
            allowed(used=1, reset_us=60_000_000),
            {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "60"},
        ),
        (without_numbers(Reason.NO_POLICY, allow=True), {}),
        (
            without_numbers(Reason.STORAGE_UNAVAILABLE, allow=True),
            {"X-RateLimit-Degraded": "storage_unavailable"},
        ),
    ],
)
def test_allowed_is_200_with_nothing_in_it(decision: Decision, headers: dict[str, str]) -> None:
    """A body would cost NGINX its connection to us."""
    answer = nginx.write(decision, ResponseOptions())
    assert (answer.status, answer.headers, answer.body) == (200, headers, b"")


def test_a_refusal_is_an_empty_403_that_says_what_it_means() -> None:
    """Any other status would be an error to NGINX, and a body is never shown."""
    answer = nginx.write(refused(retry_us=23_000_000, reset_us=12_000_000), ResponseOptions())
    assert (answer.status, answer.body) == (403, b"")
    assert answer.headers == {
        "X-RateLimit-Limit": "10",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "12",
        "X-RateLimit-Rule": "r",
        "X-RateLimit-Status": "429",
        "Cache-Control": "no-store",
        "Retry-After": "23",
    }


@pytest.mark.parametrize(
    ("reason", "unavailable_status", "status"),
    [
        (Reason.BLOCKED, 503, "403"),
        (Reason.IDENTIFIER_MISSING, 503, "403"),
        (Reason.STORAGE_UNAVAILABLE, 503, "503"),
        (Reason.STORAGE_UNAVAILABLE, 500, "500"),
    ],
)
def test_what_is_no_quota_is_a_403_with_another_meaning(
    reason: Reason, unavailable_status: int, status: str
) -> None:
    """No 5xx, which NGINX takes for a sidecar that is broken; no numbers, and no Retry-After."""
    answer = nginx.write(
        without_numbers(reason, allow=False, rule_id="b"),
        ResponseOptions(unavailable_status=unavailable_status),
    )
    assert (answer.status, answer.body) == (403, b"")
    said = {name: value for name, value in answer.headers.items() if name != "X-RateLimit-Degraded"}
    assert said == {"X-RateLimit-Rule": "b", "X-RateLimit-Status": status, "Cache-Control": "no-store"}


def test_a_rules_own_status_is_a_meaning_too_and_its_body_is_not_sent() -> None:
    """NGINX would throw it away with the connection."""
    own = rule(response=Refusal(status=420, body="calm down"))
    answer = nginx.write(refused(of=check(own)), ResponseOptions())
    assert (answer.status, answer.headers["X-RateLimit-Status"], answer.body) == (403, "420", b"")
    assert "Content-Type" not in answer.headers
