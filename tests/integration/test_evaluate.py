"""`POST /v1/evaluate` of a real sidecar with a real store: the API document's examples and its edges."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.raw_http import Reply
from tests.sidecar_process import SidecarProcess

KEYS = ["allowed", "limit", "remaining", "reset_at", "retry_after", "rule_id", "reason"]
CONFIG: dict[str, Any] = {
    "default_client": "mon-service",
    "clients": [
        {
            "id": "mon-service",
            "rules": [
                {
                    "id": "videos-read",
                    "route": "/api/videos",
                    "method": "GET",
                    "identifier_type": "session_id",
                    "algorithm": "sliding_window",
                    "limit": 3,
                    "window_seconds": 3600,
                },
                {"id": "free", "route": "/free", "mode": "exempt"},
                {"id": "closed", "route": "/closed", "mode": "block"},
                {
                    "id": "by-agent",
                    "route": "/agent",
                    "identifier_type": "ip_user_agent",
                    "limit": 1,
                    "window_seconds": 3600,
                },
                {
                    "id": "by-user",
                    "route": "/user",
                    "identifier_type": "user_id",
                    "limit": 1,
                    "window_seconds": 3600,
                    "on_missing": "deny",
                },
                {
                    "id": "all-together",
                    "route": "/together",
                    "identifier_type": "none",
                    "limit": 5,
                    "window_seconds": 3600,
                },
                {
                    "id": "by-plan",
                    "route": "/plan",
                    "identifier_type": "header:X-Plan",
                    "limit": 1,
                    "window_seconds": 3600,
                },
            ],
        },
        {
            "id": "off",
            "enforcement": "off",
            "rules": [
                {"id": "r", "route": "/*", "identifier_type": "none", "limit": 1, "window_seconds": 60}
            ],
        },
    ],
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


def evaluate(sidecar: SidecarProcess, route: str, identifier: dict[str, Any], **more: Any) -> Reply:
    asked = {"client_id": "mon-service", "route": route, "method": "GET", "identifier": identifier}
    return sidecar.evaluate(**{**asked, **more})


def session(name: str) -> dict[str, Any]:
    return {"type": "session_id", "session_id": name}


def none() -> dict[str, Any]:
    return {"type": "none"}


def test_an_allowed_request_is_answered_as_the_document_says(sidecar: SidecarProcess) -> None:
    """The keys in their order, with their types and nulls."""
    reply = evaluate(sidecar, "/api/videos", session("user-abc-123"))
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    fields = reply.json
    assert list(fields) == KEYS
    reset_at = datetime.strptime(fields.pop("reset_at"), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert 3500 < (reset_at - datetime.now(UTC)).total_seconds() < 3700
    assert fields == {
        "allowed": True,
        "limit": 3,
        "remaining": 2,
        "retry_after": None,
        "rule_id": "videos-read",
        "reason": "allowed",
    }


def test_a_used_up_quota_is_answered_as_the_document_says(sidecar: SidecarProcess) -> None:
    """With 429, and the same numbers in the headers."""
    replies = [evaluate(sidecar, "/api/videos", session("full")) for _ in range(4)]
    assert [(reply.status, reply.json["remaining"]) for reply in replies] == [
        (200, 2),
        (200, 1),
        (200, 0),
        (429, 0),
    ]
    fields = replies[3].json
    assert list(fields) == KEYS
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", fields.pop("reset_at"))
    retry_after = fields.pop("retry_after")
    assert 3500 < retry_after <= 3600
    assert fields == {
        "allowed": False,
        "limit": 3,
        "remaining": 0,
        "rule_id": "videos-read",
        "reason": "quota_exceeded",
    }
    headers = replies[3].headers
    assert headers["retry-after"] == str(retry_after)
    assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("3", "0")
    assert (headers["x-ratelimit-rule"], headers["cache-control"]) == ("videos-read", "no-store")


@pytest.mark.parametrize(
    ("route", "client", "status", "fields"),
    [
        ("/unknown", "mon-service", 200, (True, *[None] * 5, "no_policy")),
        ("/free", "mon-service", 200, (True, *[None] * 5, "exempt")),
        ("/closed", "mon-service", 403, (False, *[None] * 4, "closed", "blocked")),
        ("/x", "off", 200, (True, *[None] * 5, "enforcement_off")),
    ],
)
def test_without_a_counting_rule_there_are_no_numbers(
    sidecar: SidecarProcess, route: str, client: str, status: int, fields: tuple[Any, ...]
) -> None:
    """Nulls, not zeros."""
    reply = evaluate(sidecar, route, none(), client_id=client)
    assert (reply.status, list(reply.json.items())) == (status, list(zip(KEYS, fields, strict=True)))
    assert "retry-after" not in reply.headers


def test_an_unknown_client_is_a_404(sidecar: SidecarProcess) -> None:
    """Never another one's rules, and not the default's."""
    reply = evaluate(sidecar, "/api/videos", session("x"), client_id="nobody")
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"])
def test_another_method_is_a_405(sidecar: SidecarProcess, method: str) -> None:
    """It says which one is meant."""
    reply = sidecar.ask(method, "/v1/evaluate")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"a=b", b"[" * 100_000])
def test_no_json_object_is_a_400(sidecar: SidecarProcess, body: bytes | None) -> None:
    """Whatever the content type says."""
    reply = sidecar.ask("POST", "/v1/evaluate", {"Content-Type": "application/json"}, body)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")


def test_wrong_fields_are_a_422_that_names_each(sidecar: SidecarProcess) -> None:
    """All at once, with what was expected."""
    reply = sidecar.evaluate(
        client_id=7, method="", identifier={"type": "session_id"}, cost=2**53 + 1, costs=1, headers={"a": 1}
    )
    assert (reply.status, reply.headers["content-type"]) == (422, "application/problem+json")
    assert {error["field"] for error in reply.json["errors"]} == {
        "client_id",
        "route",
        "method",
        "identifier.session_id",
        "cost",
        "costs",
        "headers.a",
    }
    assert all(error["message"] for error in reply.json["errors"])


def test_cost_0_asks_and_charges_nothing(sidecar: SidecarProcess) -> None:
    """It answers as a request of cost 1 would be answered now."""
    asked = [evaluate(sidecar, "/together", none(), cost=0).json for _ in range(3)]
    assert [fields["remaining"] for fields in asked] == [5, 5, 5]
    assert [evaluate(sidecar, "/together", none(), cost=cost).json["remaining"] for cost in (2, 3)] == [3, 0]
    full = evaluate(sidecar, "/together", none(), cost=0)
    assert (full.status, full.json["reason"]) == (429, "quota_exceeded")


def test_a_cost_that_can_never_fit_has_no_retry(sidecar: SidecarProcess) -> None:
    """No waiting helps, and nothing was charged."""
    for cost in (4, 2**53):
        reply = evaluate(sidecar, "/api/videos", session("big"), cost=cost)
        assert (reply.status, reply.json["retry_after"], "retry-after" in reply.headers) == (429, None, False)
    assert evaluate(sidecar, "/api/videos", session("big")).json["remaining"] == 2


def test_several_parts_of_an_identifier_may_be_given_and_each_rule_takes_its_own(
    sidecar: SidecarProcess,
) -> None:
    """The type says only which one is required."""
    who = {"type": "none", "session_id": "s", "ip": "192.0.2.9", "user_agent": "agent", "user_id": "42"}
    for route in ("/agent", "/user"):
        assert evaluate(sidecar, route, who).status == 200
        assert evaluate(sidecar, route, who).status == 429
        assert evaluate(sidecar, route, {**who, "user_agent": "b", "user_id": "43"}).status == 200
    assert evaluate(sidecar, "/api/videos", who).json["remaining"] == 2


def test_what_a_denying_rule_misses_is_a_422(sidecar: SidecarProcess) -> None:
    """A caller that is no proxy can say more."""
    reply = evaluate(sidecar, "/user", session("s"))
    assert (reply.status, reply.json["errors"][0]["field"]) == (422, "identifier")


def test_headers_of_the_described_request_count_as_its_own(sidecar: SidecarProcess) -> None:
    """And those of the call itself do not."""
    body = {"client_id": "mon-service", "route": "/plan", "method": "GET", "identifier": none()}
    for plan in ("gold", "silver"):
        sent = json.dumps({**body, "headers": {"x-PLAN": plan}}).encode()
        assert sidecar.ask("POST", "/v1/evaluate", {"X-Plan": "constant"}, sent).status == 200
        assert sidecar.ask("POST", "/v1/evaluate", {"X-Plan": "constant"}, sent).status == 429


def test_the_proxys_way_and_this_one_share_their_counters(sidecar: SidecarProcess) -> None:
    """One limit, however it is asked about."""
    through_proxy = sidecar.ask("GET", "/authz/api/videos", {"X-Session-Id": "both"})
    assert through_proxy.headers["x-ratelimit-remaining"] == "2"
    assert evaluate(sidecar, "/api/videos", session("both")).json["remaining"] == 1
