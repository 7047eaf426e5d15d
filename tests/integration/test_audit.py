"""Who changed what, when: the audit list of two replicas, which is one list in their store."""

from datetime import UTC, datetime
from typing import Any

from sidecar.domain.identity import hashed
from tests.raw_http import Connection
from tests.replicas import done
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess

SECOND_KEY = "second-key-of-the-tests"
RULE: dict[str, Any] = {"route": "/*", "identifier_type": "none", "limit": 10, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "admin": {
        "keys": [
            {"name": "ops", "key": ADMIN, "role": "admin"},
            {"name": "night-shift", "key": SECOND_KEY, "role": "admin"},
            {"name": "watcher", "key": VIEWER, "role": "viewer"},
        ]
    },
    "clients": [{"id": "c", "rules": [{"id": "all", **RULE}]}],
}


def entries(sidecar: SidecarProcess, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done(sidecar.admin("GET", f"/v1/audit{query}", key=VIEWER)).json["entries"]
    return found


def test_an_entry_says_who_did_what_when_and_what_was_there_before_and_after(
    pair: list[SidecarProcess],
) -> None:
    """By the name of the key, whichever replica was asked, and the newest first."""
    begun = datetime.now(UTC)
    done(pair[0].admin("PATCH", "/v1/clients/c/policies/all", {"limit": 5}))
    done(pair[1].admin("POST", "/v1/clients", {"id": "new", "name": "New"}, key=SECOND_KEY), 201)
    assert pair[0].admin("DELETE", "/v1/clients/new").status == 204
    ended = datetime.now(UTC)
    found = entries(pair[1])
    assert found == entries(pair[0])
    deleted, created, changed = found
    assert [one["by"] for one in found] == ["ops", "night-shift", "ops"]
    assert [one["subject"] for one in found] == ["new", "new", "c/all"]
    assert [one["action"] for one in found] == ["client.delete", "client.create", "policy.change"]
    assert (changed["before"]["rules"][0]["limit"], changed["after"]["rules"][0]["limit"]) == (10, 5)
    assert (created["before"], created["after"]["name"]) == (None, "New")
    assert (deleted["before"]["name"], deleted["after"]) == ("New", None)
    moments = [datetime.fromisoformat(one["at"]) for one in found]
    assert ended >= moments[0] >= moments[1] >= moments[2] >= begun


def test_the_switch_and_resets_are_in_the_list(pair: list[SidecarProcess]) -> None:
    """With what was switched from and to; a reset says of what, and names no caller's identifier."""
    done(pair[0].admin("PUT", "/v1/enforcement", {"enforcement": "shadow"}))
    assert pair[1].admin("DELETE", "/v1/enforcement").status == 204
    done(pair[0].admin("DELETE", "/v1/clients/c/counters?policy=all"))
    done(pair[0].admin("DELETE", "/v1/clients/c/counters?identifier=somebody"))
    found = entries(pair[0])
    assert [one["action"] for one in found] == ["counters.reset"] * 2 + ["enforcement"] * 2
    assert [(one["before"], one["after"]) for one in found[2:]] == [("shadow", None), (None, "shadow")]
    assert [one["subject"] for one in found[:2]] == ["c/*/" + hashed("=somebody"), "c/all"]
    assert "somebody" not in str(found)


def test_a_reset_names_whom_it_resets_as_it_may_be_shown(pair: list[SidecarProcess]) -> None:
    """Of a session the eight digits, whichever way it is named; of others what they are."""
    rules = [
        {**RULE, "id": "s", "identifier_type": "session_id"},
        {**RULE, "id": "u", "identifier_type": "user_id"},
    ]
    done(pair[0].admin("POST", "/v1/clients", {"id": "named", "rules": rules}), 201)
    for query in ("policy=s&identifier=session-of-eve", "policy=u&identifier=eve"):
        done(pair[0].admin("DELETE", f"/v1/clients/named/counters?{query}"))
    subjects = [one["subject"] for one in entries(pair[0])[:2]]
    assert subjects == ["named/u/eve", "named/s/" + hashed("=session-of-eve")]


def test_what_was_refused_is_not_in_the_list(pair: list[SidecarProcess]) -> None:
    """Nothing has changed: a viewer, no key, a lost race, a conflict, a mistake."""
    assert pair[0].admin("PATCH", "/v1/clients/c", {"name": "x"}, key=VIEWER).status == 403
    assert pair[0].admin("PATCH", "/v1/clients/c", {"name": "x"}, key=None).status == 403
    assert pair[0].admin("PATCH", "/v1/clients/c", {"nome": "x"}).status == 422
    assert pair[0].admin("POST", "/v1/clients", {"id": "c"}).status == 409
    assert pair[0].admin("DELETE", "/v1/clients/c").status == 409
    assert entries(pair[0]) == []


def test_nothing_secret_is_in_the_list(pair: list[SidecarProcess]) -> None:
    """No key of the admin port; sessions and keys of callers that a rule names only by their hash."""
    rules = [
        {**RULE, "id": "s", "identifier_type": "session_id", "overrides": {"session-of-alice": 50}},
        {**RULE, "id": "h", "identifier_type": "header:x-api-key", "overrides": {"key-of-bob": "unlimited"}},
        {**RULE, "id": "u", "identifier_type": "user_id", "overrides": {"carol": "block"}},
        {
            **RULE,
            "id": "both",
            "identifier_type": ["user_id", "cookie:token"],
            "overrides": {"dave|token-of-dave": 50},
        },
    ]
    done(pair[0].admin("POST", "/v1/clients", {"id": "secrets", "rules": rules}), 201)
    done(pair[0].admin("PATCH", "/v1/clients/secrets", {"name": "changed"}))
    listed = str(entries(pair[0]))
    for secret in (ADMIN, SECOND_KEY, VIEWER, "session-of-alice", "key-of-bob", "token-of-dave"):
        assert secret not in listed
    assert "carol" in listed
    kept = pair[0].admin("GET", "/v1/clients/secrets").json["rules"]
    assert kept[0]["overrides"] == {"session-of-alice": 50}


def test_the_list_keeps_the_newest_thousand_and_is_read_in_pages(pair: list[SidecarProcess]) -> None:
    """However many changes there were; an entry does not grow with a client of any size."""
    changes = 1010
    with Connection(pair[0].admin_port) as connection:
        for number in range(changes):
            body = f'{{"name": "{number}"}}'.encode()
            done(connection.ask("PATCH", "/v1/clients/c", {"X-Admin-Key": ADMIN}, body))
    found = entries(pair[1], "?limit=1000")
    names = [one["after"]["name"] for one in found]
    assert names == [str(number) for number in reversed(range(changes - 1000, changes))]
    assert [one["after"]["name"] for one in entries(pair[1], "?skip=10&limit=5")] == names[10:15]
    assert len(entries(pair[1])) == 100
    assert entries(pair[1], "?skip=1000") == []
    for query in ("?limit=0", "?limit=1001", "?skip=-1", "?limit=x"):
        assert pair[1].admin("GET", f"/v1/audit{query}").status == 422


def test_of_a_very_large_client_the_list_says_that_it_is_left_out(pair: list[SidecarProcess]) -> None:
    """One entry cannot fill the store."""
    rules = [{**RULE, "id": f"r{number}", "route": f"/{number}"} for number in range(500)]
    done(pair[0].admin("POST", "/v1/clients", {"id": "large", "rules": rules}), 201)
    (created,) = entries(pair[0])
    assert "left_out" in created["after"]
    assert len(str(created)) < 1000
