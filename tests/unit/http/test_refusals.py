"""What a refusal is to proxies that hand it on, and where a rule has its own."""

import json
from dataclasses import replace

import pytest

from sidecar.domain.decision import Decision, Reason
from sidecar.domain.refusal import Refusal
from sidecar.infrastructure.http.dialects import envoy, evaluate, forward_auth, nginx, ratelog
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.refusals import full_answer
from tests.decisions import allowed, check, refused, rule, without_numbers

DEFAULT = ResponseOptions()
OWN = Refusal(status=418, body="Éteint ☕", content_type="text/plain; charset=utf-8")


def own(refusal: Refusal) -> Decision:
    return refused(of=check(rule(response=refusal)))


def test_a_rule_has_its_own_status_body_and_type() -> None:
    """Its headers are those of every refusal; the body is UTF-8."""
    answer = full_answer(own(OWN), DEFAULT)
    assert (answer.status, answer.body.decode()) == (418, "Éteint ☕")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (answer.headers["Retry-After"], answer.headers["X-RateLimit-Rule"]) == ("23", "r")
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("refusal", "status", "content_type", "body"),
    [
        (Refusal(), 429, "application/problem+json", None),
        (Refusal(status=420), 420, "application/problem+json", None),
        (Refusal(body="wait"), 429, "text/plain; charset=utf-8", b"wait"),
        (Refusal(body=""), 429, "text/plain; charset=utf-8", b""),
        (Refusal(body="{}", content_type="application/json"), 429, "application/json", b"{}"),
    ],
)
def test_what_it_leaves_out_is_as_always(
    refusal: Refusal, status: int, content_type: str, body: bytes | None
) -> None:
    """A problem says the status that is really sent."""
    answer = full_answer(own(refusal), DEFAULT)
    assert (answer.status, answer.headers["Content-Type"]) == (status, content_type)
    if body is None:
        assert json.loads(answer.body)["status"] == status
        assert json.loads(answer.body)["violated-policies"] == ["r"]
    else:
        assert answer.body == body


def test_a_block_rules_own_answer_is_given_too() -> None:
    """Without a time to wait."""
    blocked = replace(without_numbers(Reason.BLOCKED, allow=False, rule_id="b"), refusal=OWN)
    answer = full_answer(blocked, DEFAULT)
    assert answer.status == 418
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("reason", [Reason.IDENTIFIER_MISSING, Reason.STORAGE_UNAVAILABLE, Reason.BLOCKED])
def test_other_refusals_say_why(reason: Reason) -> None:
    """As a problem."""
    answer = full_answer(without_numbers(reason, allow=False), DEFAULT)
    problem = json.loads(answer.body)
    assert problem["status"] == answer.status
    assert problem["detail"]


def test_nginx_gets_the_status_and_no_body() -> None:
    """It takes a 403 alone; `X-RateLimit-Status` says what is to become of it."""
    answer = nginx.write(own(OWN), DEFAULT)
    assert (answer.status, answer.headers["X-RateLimit-Status"], answer.body) == (403, "418", b"")
    assert "Content-Type" not in answer.headers


def test_a_front_envoy_is_told_of_a_429_alone_and_only_if_asked_for() -> None:
    """It then does not retry what would be charged again; other proxies have no use for it."""
    told = ResponseOptions(envoy_ratelimited=True)
    assert envoy.write(refused(), told).headers["X-Envoy-RateLimited"] == "true"
    others = [
        envoy.write(refused(), DEFAULT),
        envoy.write(allowed(), told),
        envoy.write(own(OWN), told),
        envoy.write(without_numbers(Reason.BLOCKED, allow=False), told),
        nginx.write(refused(), told),
        forward_auth.write(refused(), told),
        evaluate.write(refused(), told),
        ratelog.write_check(refused(), told),
    ]
    assert not any("X-Envoy-RateLimited" in answer.headers for answer in others)


@pytest.mark.parametrize(
    "options",
    [
        ResponseOptions(reset_epoch=True),
        ResponseOptions(ietf_headers=True, legacy_headers=False, envoy_ratelimited=True),
    ],
)
def test_the_json_apis_answer_the_same_whatever_the_options(options: ResponseOptions) -> None:
    """Status, body and time to wait are the formats that their callers know; a rule's own is for proxies."""
    for decision in (allowed(), refused(), own(OWN)):
        for write in (evaluate.write, ratelog.write_check, ratelog.write_status):
            usual, now = write(decision, DEFAULT), write(decision, options)
            assert (now.status, now.body) == (usual.status, usual.body)
            for name in ("Content-Type", "Retry-After"):
                assert now.headers.get(name) == usual.headers.get(name)
            assert now.status != 418
