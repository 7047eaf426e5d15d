"""`POST /v1/explain`: why a request is answered as it is, compared with what the data port then does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import StoreServer
from tests.raw_http import Reply
from tests.replicas import done, replicas
from tests.sidecar_process import VIEWER, SidecarProcess

RULE: dict[str, Any] = {"identifier_type": "session_id", "limit": 100, "window_seconds": 86_400}
RULES = [
    {"id": "general", "route": "/*", **RULE},
    {"id": "videos", "route": "/videos", **RULE, "limit": 3, "final": True},
    {"id": "free", "route": "/free", "mode": "exempt"},
    {"id": "closed", "route": "/closed", "mode": "block"},
    {"id": "watched", "route": "/watched", "mode": "shadow", **RULE, "limit": 1},
]
CONFIG: dict[str, Any] = {"clients": [{"id": "c", "hosts": ["c.example"], "rules": RULES}]}


@pytest.fixture(scope="module")
def sidecar(valkey_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with (
        StoreServer(valkey_binary) as store,
        replicas(tmp_path_factory.mktemp("explain"), CONFIG, [store.url]) as (running,),
    ):
        yield running


def explained(sidecar: SidecarProcess, route: str, session: str, host: str = "c.example") -> dict[str, Any]:
    identifier = {"type": "session_id", "session_id": session}
    asked = {"route": route, "host": host, "identifier": identifier}
    answer: dict[str, Any] = done(sidecar.admin("POST", "/v1/explain", asked, key=VIEWER)).json
    return answer


def sent(sidecar: SidecarProcess, route: str, session: str, host: str = "c.example") -> Reply:
    """The same request, through a proxy."""
    return sidecar.ask("GET", f"/authz{route}", {"Host": host, "X-Session-Id": session})


def agree(answer: dict[str, Any], reply: Reply) -> None:
    """Status and limit as they then were; what remains is without the request that was only described."""
    assert answer["status"] == reply.status
    for name in ("X-RateLimit-Limit", "X-RateLimit-Rule"):
        assert answer["headers"].get(name) == reply.headers.get(name.lower())


def traced(answer: dict[str, Any], rule_id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(rule for rule in answer["rules"] if rule["id"] == rule_id)
    return found


def test_an_unknown_client_is_said_to_have_no_policy(sidecar: SidecarProcess) -> None:
    answer = explained(sidecar, "/videos", "unknown", "other.example")
    assert (answer["client"], answer["reason"], answer["rules"]) == (None, "no_policy", [])
    agree(answer, sent(sidecar, "/videos", "unknown", "other.example"))


def test_an_exempt_rule_is_named(sidecar: SidecarProcess) -> None:
    """With the general one that applies as well, and is not counted."""
    answer = explained(sidecar, "/free", "exempt")
    assert (answer["client"], answer["found_by"]) == ("c", "host")
    assert (answer["allowed"], answer["reason"], answer["rule_id"]) == (True, "exempt", "free")
    assert [(rule["id"], rule["counter"]) for rule in answer["rules"]] == [("free", None), ("general", None)]
    agree(answer, sent(sidecar, "/free", "exempt"))


def test_a_blocking_rule_is_named(sidecar: SidecarProcess) -> None:
    answer = explained(sidecar, "/closed", "blocked")
    assert (answer["allowed"], answer["reason"], answer["rule_id"]) == (False, "blocked", "closed")
    assert answer["status"] == 403
    agree(answer, sent(sidecar, "/closed", "blocked"))


def test_a_final_rule_is_named_by_what_it_leaves_out(sidecar: SidecarProcess) -> None:
    """By whatever spelling the path came; the canonical one is said."""
    answer = explained(sidecar, "//api/../videos/?page=2", "final")
    assert answer["path"] == "/videos"
    assert (traced(answer, "videos")["applies"], traced(answer, "videos")["left_out_by"]) == (True, None)
    assert (traced(answer, "general")["applies"], traced(answer, "general")["left_out_by"]) == (
        False,
        "videos",
    )
    reply = sent(sidecar, "//api/../videos/?page=2", "final")
    agree(answer, reply)
    assert reply.headers["x-ratelimit-limit"] == "3"


def test_a_shadow_rule_says_what_it_would_refuse(sidecar: SidecarProcess) -> None:
    """The request passes; the numbers are those of the rule that enforces."""
    for fits in (True, False):
        answer = explained(sidecar, "/watched", "shadow")
        watched = traced(answer, "watched")
        assert (watched["shadow"], watched["counter"]["fits"]) == (True, fits)
        assert (answer["allowed"], answer["reason"], answer["rule_id"]) == (True, "allowed", "general")
        agree(answer, sent(sidecar, "/watched", "shadow"))


def test_an_exceeded_quota_is_said_with_its_counter(sidecar: SidecarProcess) -> None:
    """Used, remaining and when it fits again; the session only by its hash, in the key, too."""
    for number in range(3):
        answer = explained(sidecar, "/videos", "quota-of-alice")
        counter = traced(answer, "videos")["counter"]
        assert (counter["used"], counter["remaining"], counter["fits"]) == (number, 3 - number, True)
        agree(answer, sent(sidecar, "/videos", "quota-of-alice"))
    answer = explained(sidecar, "/videos", "quota-of-alice")
    counter = traced(answer, "videos")["counter"]
    assert (answer["allowed"], answer["reason"], answer["rule_id"]) == (False, "quota_exceeded", "videos")
    assert (counter["used"], counter["remaining"], counter["fits"]) == (3, 0, False)
    assert 0 < counter["retry_seconds"] <= 86_400
    assert "quota-of-alice" not in str(answer)
    reply = sent(sidecar, "/videos", "quota-of-alice")
    agree(answer, reply)
    assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (429, "0")
    assert abs(int(reply.headers["retry-after"]) - counter["retry_seconds"]) < 60


def test_explaining_charges_nothing(sidecar: SidecarProcess) -> None:
    """However often: afterwards the whole limit is there."""
    answers = [explained(sidecar, "/videos", "untouched") for _ in range(10)]
    assert {traced(answer, "videos")["counter"]["used"] for answer in answers} == {0}
    assert sent(sidecar, "/videos", "untouched").headers["x-ratelimit-remaining"] == "2"
    assert traced(explained(sidecar, "/watched", "untouched"), "watched")["counter"]["used"] == 0


def test_a_request_that_cannot_be_described_so_is_refused(sidecar: SidecarProcess) -> None:
    """400 for no JSON, 422 naming each field."""
    assert sidecar.admin("POST", "/v1/explain", b"{").status == 400
    reply = sidecar.admin("POST", "/v1/explain", {"routes": "/x", "cost": -1})
    assert reply.status == 422
    for field in ("route", "routes", "cost"):
        assert f'"{field}"' in reply.body.decode()
