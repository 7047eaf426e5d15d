"""`RateLimit-Policy` and `RateLimit`: structured fields that a parser of theirs reads."""

from typing import Any

import http_sf
import pytest

from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Check, Counted, Decision, Reason, Usage, decide
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.ietf import MAX_LENGTH, ietf_headers
from sidecar.infrastructure.http.refusals import full_answer
from tests.decisions import NOW_US, allowed, check, rule, without_numbers

OPTIONS = ResponseOptions(ietf_headers=True)
YEAR = 365 * 24 * 3600


def parsed(value: str) -> dict[str, dict[str, Any]]:
    items: Any = http_sf.parse(value.encode(), tltype="list")
    return {name: dict(parameters) for name, parameters in items}


def decided(*checks: Check, usage: Usage | None = None, admitted: bool = True) -> Decision:
    usage = usage or Usage(admitted, 3, 0 if admitted else 23_000_000, 23_000_000)
    return decide(checks, Counted(admitted, NOW_US, [usage] * len(checks)))


def test_all_enforcing_rules_are_there_each_with_its_numbers() -> None:
    """What is shown in the other headers comes first; a shadow rule is nobody's business."""
    burst = check(rule("burst", limit=5, window_seconds=1, algorithm=Algorithm.TOKEN_BUCKET, burst=50))
    daily = check(rule("daily", limit=1000, window_seconds=86_400))
    watched = check(rule("watched"), shadow=True)
    headers = ietf_headers(decided(daily, burst, watched))
    assert headers == {
        "RateLimit-Policy": '"burst";q=50;w=1, "daily";q=1000;w=86400',
        "RateLimit": '"burst";r=47;t=23, "daily";r=997;t=23',
    }
    assert parsed(headers["RateLimit-Policy"]) == {
        "burst": {"q": 50, "w": 1},
        "daily": {"q": 1000, "w": 86_400},
    }
    assert parsed(headers["RateLimit"])["daily"] == {"r": 997, "t": 23}


def test_where_nothing_is_used_no_time_is_said() -> None:
    """`t` is when more will be there, and no more ever will be."""
    assert ietf_headers(allowed(used=0, reset_us=0))["RateLimit"] == '"r";r=10'


@pytest.mark.parametrize(
    ("reset_us", "seconds"), [(1, 1), (1_000_000, 1), (1_000_001, 2), (YEAR * 10**6, YEAR)]
)
def test_times_are_whole_seconds_rounded_up(reset_us: int, seconds: int) -> None:
    """As those of the other headers are."""
    assert parsed(ietf_headers(allowed(reset_us=reset_us))["RateLimit"])["r"]["t"] == seconds


def test_a_refusal_says_what_is_left_of_each() -> None:
    """Of a lowered limit more may be used than there is: never less than nothing."""
    headers = ietf_headers(decided(check(), usage=Usage(False, 25, 23_000_000, 23_000_000), admitted=False))
    assert parsed(headers["RateLimit"]) == {"r": {"r": 0, "t": 23}}


def test_integers_stay_within_those_of_structured_fields() -> None:
    """15 digits, where a limit may have 16."""
    huge = check(rule(limit=2**53, algorithm=Algorithm.FIXED_WINDOW))
    headers = ietf_headers(decided(huge))
    assert parsed(headers["RateLimit-Policy"])["r"]["q"] == 10**15 - 1
    assert parsed(headers["RateLimit"])["r"]["r"] == 10**15 - 1


@pytest.mark.parametrize("reason", [Reason.NO_POLICY, Reason.BLOCKED, Reason.STORAGE_UNAVAILABLE])
def test_without_numbers_there_are_none(reason: Reason) -> None:
    """None are invented."""
    assert ietf_headers(without_numbers(reason, allow=True)) == {}


@pytest.mark.parametrize("admitted", [True, False])
def test_with_64_rules_of_long_names_all_headers_stay_under_4_kib(admitted: bool) -> None:
    """NGINX reads no more; whole entries are left out, never the shown one, and parsers read the rest."""
    checks = [
        check(
            rule(
                f"{number:02}".ljust(64, "x"),
                limit=2**40,
                window_seconds=YEAR,
                algorithm=Algorithm.FIXED_WINDOW,
            )
        )
        for number in range(64)
    ]
    usage = Usage(admitted, 1, 0 if admitted else YEAR * 10**6, YEAR * 10**6)
    decision = decided(*checks[::-1], usage=usage, admitted=admitted)
    answer = full_answer(decision, ResponseOptions(ietf_headers=True, reset_epoch=True))
    sent = {**answer.headers, "X-Request-ID": "x" * 128, "Server": "sidecar", "Content-Length": "12345"}
    sent |= {"Date": "Mon, 15 Jan 2024 10:00:00 GMT", "Connection": "close"}
    assert sum(len(name) + len(value) + 4 for name, value in sent.items()) < 4096 - 200
    policies, limits = parsed(sent["RateLimit-Policy"]), parsed(sent["RateLimit"])
    assert 1 < len(policies) <= 64
    assert next(iter(policies)) == next(iter(limits)) == decision.rule_id
    assert len(sent["RateLimit"]) <= MAX_LENGTH
