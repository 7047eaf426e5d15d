"""What operators do in a bad night, in force on both replicas: switch limits off, reset counters, see who."""

import hashlib
from typing import Any
from urllib.parse import quote

import pytest

from tests.parts import until
from tests.replicas import done
from tests.sidecar_process import SidecarProcess

RULE: dict[str, Any] = {"limit": 2, "window_seconds": 86_400}
RULES = [
    {"id": "all", "route": "/all", "identifier_type": "none", **RULE},
    {"id": "session", "route": "/session", "identifier_type": "session_id", **RULE},
    {"id": "user", "route": "/user", "identifier_type": "user_id", "limit": 1000, "window_seconds": 86_400},
]
CONFIG: dict[str, Any] = {
    "enforcement": "on",
    "default_client": "c",
    "clients": [{"id": "c", "rules": RULES}],
}


def used_up(pair: list[SidecarProcess], target: str, **headers: str) -> None:
    """The limit, half of it through each replica; both refuse now."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    assert [sidecar.ask("GET", target, named).status for sidecar in (*pair, *pair)] == [200, 200, 429, 429]


async def answers(pair: list[SidecarProcess], target: str, status: int, **headers: str) -> None:
    """At once where it was changed, and within the contract's second on the other one."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    assert pair[0].ask("GET", target, named).status == status
    await until(
        lambda: pair[1].ask("GET", target, named).status == status, f"{target} is {status}", seconds=3
    )


async def test_the_global_switch_is_in_force_on_both_replicas_and_goes_back_to_the_file(
    pair: list[SidecarProcess],
) -> None:
    """shadow and off let everything pass, on refuses again what was used up before."""
    used_up(pair, "/authz/all")
    for switch, status in (("off", 200), ("on", 429), ("shadow", 200)):
        answer = done(pair[0].admin("PUT", "/v1/enforcement", {"enforcement": switch})).json
        assert answer == {"enforcement": switch, "source": "api"}
        await answers(pair, "/authz/all", status)
        assert pair[1].admin("GET", "/v1/enforcement").json == answer
    assert pair[0].admin("DELETE", "/v1/enforcement").status == 204
    await answers(pair, "/authz/all", 429)
    for sidecar in pair:
        assert sidecar.admin("GET", "/v1/enforcement").json == {"enforcement": "on", "source": "file"}


async def test_the_switch_of_a_client_is_in_force_on_both_replicas(pair: list[SidecarProcess]) -> None:
    """And undone by deleting the override."""
    used_up(pair, "/authz/all")
    for switch, status in (("off", 200), ("on", 429), ("shadow", 200)):
        done(pair[0].admin("PATCH", "/v1/clients/c", {"enforcement": switch}))
        await answers(pair, "/authz/all", status)
    assert pair[0].admin("DELETE", "/v1/clients/c").status == 204
    await answers(pair, "/authz/all", 429)


async def test_off_is_off_and_a_strict_client_cannot_make_it_on(pair: list[SidecarProcess]) -> None:
    """Of the two switches the weaker one holds; what shadow counts is counted all the same."""
    done(pair[0].admin("PUT", "/v1/enforcement", {"enforcement": "shadow"}))
    done(pair[0].admin("PATCH", "/v1/clients/c", {"enforcement": "on"}))
    for _ in range(3):
        assert pair[0].ask("GET", "/authz/all").status == 200
    assert pair[0].admin("DELETE", "/v1/enforcement").status == 204
    await answers(pair, "/authz/all", 429)


async def test_counters_of_a_rule_are_reset_everywhere(pair: list[SidecarProcess]) -> None:
    """For all of its identifiers; those of the other rules stay."""
    used_up(pair, "/authz/all")
    used_up(pair, "/authz/session", X_Session_Id="alice")
    done(pair[0].admin("DELETE", "/v1/clients/c/counters?policy=session"))
    await answers(pair, "/authz/session", 200, X_Session_Id="alice")
    await answers(pair, "/authz/all", 429)


async def test_counters_of_one_identifier_are_reset_everywhere(pair: list[SidecarProcess]) -> None:
    """Those of the other identifiers stay."""
    used_up(pair, "/authz/session", X_Session_Id="alice")
    used_up(pair, "/authz/session", X_Session_Id="bob")
    reply = pair[0].admin("DELETE", "/v1/clients/c/counters?policy=session&identifier=alice")
    assert done(reply).json == {"deleted": 1}
    await answers(pair, "/authz/session", 200, X_Session_Id="alice")
    await answers(pair, "/authz/session", 429, X_Session_Id="bob")


async def test_all_counters_of_a_client_are_reset_everywhere(pair: list[SidecarProcess]) -> None:
    used_up(pair, "/authz/all")
    used_up(pair, "/authz/session", X_Session_Id="alice")
    done(pair[0].admin("DELETE", "/v1/clients/c/counters"))
    await answers(pair, "/authz/all", 200)
    await answers(pair, "/authz/session", 200, X_Session_Id="alice")


async def test_whom_a_look_shows_a_reset_takes_as_it_is_shown(pair: list[SidecarProcess]) -> None:
    """A session by its eight digits, callers without one by what they fell back on."""
    used_up(pair, "/authz/session", X_Session_Id="alice")
    used_up(pair, "/authz/session", X_Client_IP="192.0.2.9")
    policy = "/v1/clients/c/policies/session"
    shown = done(pair[0].admin("GET", f"{policy}/busiest")).json["identifiers"]
    assert sorted(one["identifier"] for one in shown) == ["2bd806c9", "~ip=192.0.2.9"]
    for one in shown:
        query = f"policy=session&identifier={quote(one['identifier'])}"
        assert done(pair[0].admin("DELETE", f"/v1/clients/c/counters?{query}")).json == {"deleted": 1}
        assert done(pair[0].admin("DELETE", f"/v1/clients/c/counters?{query}")).json == {"deleted": 0}
    await answers(pair, "/authz/session", 200, X_Session_Id="alice")
    await answers(pair, "/authz/session", 200, X_Client_IP="192.0.2.9")


@pytest.mark.parametrize(
    ("method", "target", "field"),
    [
        ("DELETE", "/v1/clients/c/counters?polcy=all", "polcy"),
        ("DELETE", "/v1/clients/c/counters?policy=all&policy=user", "policy"),
        ("DELETE", "/v1/clients/c?policy=all", "policy"),
        ("DELETE", "/rate/reset/7?endpont=x", "endpont"),
        ("GET", "/v1/clients/c/policies/user/busiest?limits=1", "limits"),
    ],
)
def test_a_misspelt_or_repeated_parameter_is_an_error_that_names_it(
    pair: list[SidecarProcess], method: str, target: str, field: str
) -> None:
    """It would have reset more than was meant."""
    used_up(pair, "/authz/all")
    refused = pair[0].admin(method, target)
    assert refused.status == 422
    assert [error["field"] for error in refused.json["errors"]] == [field]
    assert pair[0].ask("GET", "/authz/all").status == 429


def test_a_reset_of_what_is_not_there_is_an_error(pair: list[SidecarProcess]) -> None:
    """And of an identifier without a counter it deletes none."""
    for query, status in (("?policy=none", 404), ("?identifier=", 422)):
        assert pair[0].admin("DELETE", f"/v1/clients/c/counters{query}").status == status
    assert pair[0].admin("DELETE", "/v1/clients/none/counters").status == 404
    reply = pair[0].admin("DELETE", "/v1/clients/c/counters?policy=session&identifier=nobody")
    assert done(reply).json == {"deleted": 0}


def counted(pair: list[SidecarProcess], users: dict[str, int]) -> None:
    for user, times in users.items():
        for number in range(times):
            reply = pair[number % 2].ask("GET", "/authz/user", {"X-User-Id": user})
            assert reply.status == 200


def test_the_busiest_identifiers_are_those_of_all_replicas_most_first(pair: list[SidecarProcess]) -> None:
    counted(pair, {"alice": 7, "bob": 3, "carol": 5, "dave": 1})
    for sidecar in pair:
        found = done(sidecar.admin("GET", "/v1/clients/c/policies/user/busiest?limit=3")).json
        assert [(one["identifier"], one["count"]) for one in found["identifiers"]] == [
            ("alice", 7),
            ("carol", 5),
            ("bob", 3),
        ]
        assert (found["looked_at"], found["complete"]) == (4, True)
    for query in ("?limit=0", "?limit=101", "?limit=x"):
        assert pair[0].admin("GET", f"/v1/clients/c/policies/user/busiest{query}").status == 422


def test_identifiers_come_in_pages_until_there_are_no_more(pair: list[SidecarProcess]) -> None:
    """Every one of them, with its count, whatever else is in the store."""
    users = {f"user-{number}": 1 + number % 2 for number in range(60)}
    counted(pair, users)
    used_up(pair, "/authz/all")
    seen: dict[str, int] = {}
    following: str | None = "0"
    while following:
        page = done(pair[0].admin("GET", f"/v1/clients/c/policies/user/identifiers?cursor={following}")).json
        seen |= {one["identifier"]: one["count"] for one in page["identifiers"]}
        following = page["next"]
    assert seen == users


def test_sessions_are_shown_by_their_hash_alone(pair: list[SidecarProcess]) -> None:
    """Eight digits of it, so that who knows a session finds it; the session itself opens an account."""
    used_up(pair, "/authz/session", X_Session_Id="secret-session")
    shown = hashlib.sha256(b"secret-session").hexdigest()[:8]
    for view in ("identifiers", "busiest"):
        reply = done(pair[0].admin("GET", f"/v1/clients/c/policies/session/{view}"))
        assert [one["identifier"] for one in reply.json["identifiers"]] == [shown]
        assert b"secret-session" not in reply.body
    asked = quote("secret-session")
    state = done(pair[0].admin("GET", f"/v1/clients/c/state?identifier={asked}"))
    assert [rule["current_count"] for rule in state.json["rules"]] == [0, 2, 0]
    assert b"secret-session" not in state.body
