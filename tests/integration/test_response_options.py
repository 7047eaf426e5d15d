"""What answers look like, as configured: headers, a rule's own response, preflights that are not counted."""

import time
from collections.abc import Iterator
from typing import Any

import http_sf
import pytest

from tests.edited_files import EditedSidecar
from tests.parts import StoreServer
from tests.raw_http import Reply
from tests.replicas import done
from tests.sidecar_process import VIEWER

DAY = 86_400
RULE: dict[str, Any] = {"identifier_type": "session_id", "limit": 1, "window_seconds": DAY}
OWN = {"status": 418, "body": "Éteint ☕", "content_type": "text/plain; charset=utf-8"}
RULES = [
    {"id": "all", "route": "/*", **RULE, "limit": 1000},
    {"id": "plain", "route": "/plain", **RULE},
    {"id": "own", "route": "/own", **RULE, "response": OWN},
    {"id": "closed", "route": "/closed", "mode": "block", "response": {"status": 451}},
    {"id": "watched", "route": "/watched", "mode": "shadow", **RULE, "response": OWN},
]
CONFIG: dict[str, Any] = {"default_client": "c", "clients": [{"id": "c", "rules": RULES}]}
PREFLIGHT = {"Origin": "https://shop.example", "Access-Control-Request-Method": "PUT"}


@pytest.fixture(scope="module")
def sidecar(store: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditedSidecar]:
    """Each test says the whole of `response` itself, and has sessions of its own."""
    config = {**CONFIG, "store": {"url": store.url}}
    with EditedSidecar(tmp_path_factory.mktemp("options") / "config", config) as running:
        yield running


def configured(sidecar: EditedSidecar, *, count_preflights: bool = True, **response: Any) -> None:
    sidecar.file.write_text(sidecar.text(response=response, count_preflights=count_preflights))
    done(sidecar.admin("POST", "/v1/reload"))


def asked(sidecar: EditedSidecar, target: str, session: str, path: str = "/authz") -> Reply:
    headers = {"X-Session-ID": session}
    if path == "/authz":
        return sidecar.ask("GET", path + target, headers)
    said = {"X-Original-Method": "GET", "X-Original-URI": target}
    said |= {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": target}
    return sidecar.ask("GET", path, headers | said)


def refused(sidecar: EditedSidecar, target: str, session: str, path: str = "/authz") -> Reply:
    assert asked(sidecar, target, session, path).status == 200
    return asked(sidecar, target, session, path)


def test_the_reset_is_a_moment_by_the_stores_clock(sidecar: EditedSidecar) -> None:
    """And `Retry-After` a time to wait, whatever the reset is."""
    configured(sidecar, reset="epoch")
    before = int(time.time())
    reply = refused(sidecar, "/plain", "epoch")
    assert before + DAY <= int(reply.headers["x-ratelimit-reset"]) <= int(time.time()) + DAY + 1
    assert DAY - 100 <= int(reply.headers["retry-after"]) <= DAY
    configured(sidecar)
    assert int(asked(sidecar, "/plain", "epoch").headers["x-ratelimit-reset"]) <= DAY


def test_the_headers_of_the_draft_are_structured_fields_of_all_rules(sidecar: EditedSidecar) -> None:
    """The shown one first; of a rule that only watches, nothing."""
    configured(sidecar, ietf_headers=True, legacy_headers=False)
    for reply, left in ((asked(sidecar, "/plain", "ietf"), 999), (asked(sidecar, "/plain", "ietf"), 999)):
        policies: Any = http_sf.parse(reply.headers["ratelimit-policy"].encode(), tltype="list")
        limits: Any = http_sf.parse(reply.headers["ratelimit"].encode(), tltype="list")
        assert policies == [("plain", {"q": 1, "w": DAY}), ("all", {"q": 1000, "w": DAY})]
        assert [(name, numbers["r"]) for name, numbers in limits] == [("plain", 0), ("all", left)]
        assert "x-ratelimit-limit" not in reply.headers
    assert (reply.status, reply.headers["x-ratelimit-rule"]) == (429, "plain")
    assert "watched" not in asked(sidecar, "/watched", "ietf").headers["ratelimit-policy"]


def test_a_front_envoy_is_told_of_a_429(sidecar: EditedSidecar) -> None:
    """At Envoy's path, where it is configured."""
    configured(sidecar)
    assert "x-envoy-ratelimited" not in refused(sidecar, "/plain", "envoy").headers
    configured(sidecar, envoy_ratelimited=True)
    assert asked(sidecar, "/plain", "envoy").headers["x-envoy-ratelimited"] == "true"
    assert "x-envoy-ratelimited" not in asked(sidecar, "/plain", "envoy", "/forward-auth").headers
    assert "x-envoy-ratelimited" not in asked(sidecar, "/own", "envoy").headers


def test_a_rules_own_response_reaches_whoever_can_hand_it_on(sidecar: EditedSidecar) -> None:
    """NGINX is told its status; a block rule has one, too; a rule that only watches says nothing."""
    configured(sidecar)
    reply = refused(sidecar, "/own", "own")
    assert (reply.status, reply.body.decode()) == (418, OWN["body"])
    assert reply.headers["content-type"] == OWN["content_type"]
    assert (reply.headers["x-ratelimit-rule"], int(reply.headers["retry-after"]) > 0) == ("own", True)
    assert asked(sidecar, "/own", "own", "/forward-auth").body.decode() == OWN["body"]
    nginx = asked(sidecar, "/own", "own", "/nginx")
    assert (nginx.status, nginx.headers["x-ratelimit-status"], nginx.body) == (403, "418", b"")
    blocked = asked(sidecar, "/closed", "own")
    assert (blocked.status, blocked.json["status"]) == (451, 451)
    assert [asked(sidecar, "/watched", "own").status for _ in range(2)] == [200, 200]


def test_the_json_apis_keep_their_format(sidecar: EditedSidecar) -> None:
    """Whatever proxies are answered."""
    configured(sidecar, reset="epoch", ietf_headers=True, legacy_headers=False, envoy_ratelimited=True)
    identifier = {"type": "session_id", "session_id": "json"}
    answers = [
        sidecar.evaluate(client_id="c", route="/own", method="GET", identifier=identifier) for _ in range(2)
    ]
    assert [answer.status for answer in answers] == [200, 429]
    fields = ["allowed", "limit", "remaining", "reset_at", "retry_after", "rule_id", "reason"]
    assert list(answers[1].json) == fields
    assert answers[1].json["reset_at"].endswith("Z")
    assert answers[1].headers["retry-after"] == str(answers[1].json["retry_after"])
    status = sidecar.ask("GET", "/rate/status?endpoint=e", {"X-User-Id": "7"}).json
    assert status == {
        "status": "ok",
        "limit": 10,
        "remaining": 10,
        "reset": 0,
        "retry_after": None,
        "count": 0,
    }


def test_the_api_keeps_a_rules_response_over_a_restart(sidecar: EditedSidecar) -> None:
    """Made, read back, changed in part, refused by the field, and taken away."""
    configured(sidecar)
    policies = "/v1/clients/shop/policies"
    made = {"id": "r", "route": "/*", **RULE, "response": OWN}
    done(sidecar.admin("POST", "/v1/clients", {"id": "shop", "hosts": ["shop.example"]}), 201)
    assert done(sidecar.admin("POST", policies, made), 201).json["response"] == OWN
    assert done(sidecar.admin("GET", f"{policies}/r")).json["response"] == OWN
    changed = done(
        sidecar.admin("PATCH", f"{policies}/r", {"response": {"status": 420, "content_type": None}})
    )
    assert changed.json["response"] == {**OWN, "status": 420, "content_type": None}
    for patch, field in (
        ({"response": {"status": 401}}, "response.status"),
        ({"response": {"content_type": "text/html\r\nX-A: b"}}, "response.content_type"),
        ({"response": {"body": None, "content_type": "text/html"}}, "response.content_type"),
        ({"response": {"unknown": 1}}, "response.unknown"),
        ({"mode": "exempt", "identifier_type": None, "limit": None, "window_seconds": None}, "response"),
    ):
        wrong = sidecar.admin("PATCH", f"{policies}/r", patch)
        assert (wrong.status, [each["field"] for each in wrong.json["errors"]]) == (422, [field]), patch
    sidecar.stop()
    sidecar.start()
    headers = {"Host": "shop.example", "X-Session-ID": "s"}
    replies = [sidecar.ask("GET", "/authz/x", headers) for _ in range(2)]
    assert [(reply.status, reply.body.decode()) for reply in replies] == [(200, ""), (420, OWN["body"])]
    block = {"mode": "block", "identifier_type": None, "limit": None, "window_seconds": None}
    done(sidecar.admin("PATCH", f"{policies}/r", block))
    assert sidecar.ask("GET", "/authz/x", headers).status == 420
    assert done(sidecar.admin("PATCH", f"{policies}/r", {"response": None})).json["response"] is None
    assert sidecar.ask("GET", "/authz/x", headers).status == 403


def test_preflights_are_not_counted_where_it_is_configured(sidecar: EditedSidecar) -> None:
    """Only real ones, and none that a rule blocks; the metric has them, and the explanation says why."""
    configured(sidecar, count_preflights=False)
    headers = PREFLIGHT | {"X-Session-ID": "preflight"}
    free = [sidecar.ask("OPTIONS", "/authz/plain", headers) for _ in range(3)]
    assert [(reply.status, "x-ratelimit-limit" in reply.headers) for reply in free] == [(200, False)] * 3
    assert sidecar.ask("OPTIONS", "/authz/closed", headers).status == 451
    half = {"X-Session-ID": "preflight", "Origin": "https://shop.example"}
    assert [sidecar.ask("OPTIONS", "/authz/plain", half).status for _ in range(2)] == [200, 429]
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    [counted] = [line for line in page.splitlines() if 'reason="exempt"' in line]
    assert counted.endswith(" 3.0")
    described = {"route": "/plain", "method": "OPTIONS", "headers": PREFLIGHT}
    told = done(sidecar.admin("POST", "/v1/explain", described, key=VIEWER)).json
    assert (told["preflight"], told["reason"], told["status"]) == (True, "exempt", 200)
    configured(sidecar)
    assert sidecar.ask("OPTIONS", "/authz/plain", headers).status == 429
    told = done(sidecar.admin("POST", "/v1/explain", described, key=VIEWER)).json
    assert (told["preflight"], told["reason"]) == (False, "allowed")
