"""Two callers edit the same client at the same time, each on a replica of its own: no edit is lost."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.parts import until
from tests.raw_http import Connection, Reply
from tests.replicas import done
from tests.sidecar_process import ADMIN, SidecarProcess

EDITS = 100
RULE: dict[str, Any] = {"route": "/*", "identifier_type": "none", "limit": 1000, "window_seconds": 3600}
CONFIG: dict[str, Any] = {"clients": [{"id": "c", "rules": [{"id": "all", **RULE}]}]}


class Caller:
    """Edits through one replica, on a connection that is kept; knows how often it came too late."""

    def __init__(self, port: int, name: str) -> None:
        self._connection = Connection(port)
        self.name = name
        self.too_late = 0

    def ask(self, method: str, target: str, body: Any = None, etag: str | None = None) -> Reply:
        headers = {"X-Admin-Key": ADMIN} | ({"If-Match": etag} if etag else {})
        return self._connection.ask(method, target, headers, json.dumps(body).encode() if body else None)

    def edit(self, method: str, target: str, edited: Callable[[Any], Any]) -> None:
        """What every careful caller does: read, edit, and begin again if it was changed in between."""
        while True:
            seen = done(self.ask("GET", target))
            reply = self.ask(method, target, edited(seen.json), seen.headers["etag"])
            if reply.status != 412:
                done(reply)
                return
            self.too_late += 1

    def close(self) -> None:
        self._connection.close()


async def together(pair: list[SidecarProcess], work: Callable[[Caller], None]) -> list[Caller]:
    callers = [Caller(sidecar.admin_port, name) for sidecar, name in zip(pair, "ab", strict=True)]
    try:
        await asyncio.gather(*(asyncio.to_thread(work, caller) for caller in callers))
    finally:
        for caller in callers:
            caller.close()
    return callers


async def everywhere(pair: list[SidecarProcess], client_id: str, holds: Callable[[Any], bool]) -> None:
    def all_hold() -> bool:
        return all(holds(sidecar.admin("GET", f"/v1/clients/{client_id}").json) for sidecar in pair)

    await until(all_hold, "every edit is there", seconds=3)


def rule_ids(client: Any) -> set[str]:
    return {rule["id"] for rule in client["rules"]}


def is_named(name: str) -> Callable[[Any], bool]:
    return lambda client: bool(client["name"] == name)


EVERY_ID = {"all", *(f"{name}{number}" for name in "ab" for number in range(EDITS))}


async def test_two_hundred_increments_of_a_limit_add_up(pair: list[SidecarProcess]) -> None:
    """With If-Match: whoever comes too late gets a 412, looks again and edits what is there."""

    def increment(caller: Caller) -> None:
        for _ in range(EDITS):
            caller.edit("PATCH", "/v1/clients/c/policies/all", lambda rule: {"limit": rule["limit"] + 1})

    callers = await together(pair, increment)
    await everywhere(pair, "c", lambda client: client["rules"][0]["limit"] == RULE["limit"] + 2 * EDITS)
    assert sum(caller.too_late for caller in callers) > 0, "they have not met"


async def test_clients_replaced_whole_keep_what_the_other_one_appended(pair: list[SidecarProcess]) -> None:
    """With If-Match on the client itself, each edit one more policy in a client that is sent whole."""

    def append(caller: Caller) -> None:
        for number in range(EDITS):
            rule = {"id": f"{caller.name}{number}", **RULE, "route": f"/{caller.name}/{number}"}

            def appended(client: Any, rule: Any = rule) -> Any:
                return {"rules": [*client["rules"], rule]}

            caller.edit("PUT", "/v1/clients/c", appended)

    await together(pair, append)
    await everywhere(pair, "c", lambda client: rule_ids(client) == EVERY_ID)


async def test_policies_that_are_added_without_if_match_are_all_there(pair: list[SidecarProcess]) -> None:
    """The sidecar itself looks again then; the order of each caller's is kept."""

    def add(caller: Caller) -> None:
        for number in range(EDITS):
            rule = {"id": f"{caller.name}{number}", **RULE, "route": f"/{caller.name}/{number}"}
            done(caller.ask("POST", "/v1/clients/c/policies", rule), 201)

    await together(pair, add)
    await everywhere(pair, "c", lambda client: rule_ids(client) == EVERY_ID)
    ids = [rule["id"] for rule in pair[0].admin("GET", "/v1/clients/c").json["rules"]]
    for name in "ab":
        assert [each for each in ids if each.startswith(name) and each != "all"] == [
            f"{name}{number}" for number in range(EDITS)
        ]


async def test_one_of_two_that_create_the_same_client_is_told_so(pair: list[SidecarProcess]) -> None:
    """201 for one and 409 for the other, a hundred times."""
    statuses: dict[str, list[int]] = {"a": [], "b": []}

    def create(caller: Caller) -> None:
        for number in range(EDITS):
            body = {"id": f"new-{number}", "name": caller.name}
            statuses[caller.name].append(caller.ask("POST", "/v1/clients", body).status)

    await together(pair, create)
    assert [sorted(both) for both in zip(*statuses.values(), strict=True)] == [[201, 409]] * EDITS
    for number in range(EDITS):
        winner = "a" if statuses["a"][number] == 201 else "b"
        await everywhere(pair, f"new-{number}", is_named(winner))


async def test_an_edit_of_what_was_deleted_brings_nothing_back(pair: list[SidecarProcess]) -> None:
    """404, or 412 for who names what it has seen; on both replicas."""
    one, other = pair
    body = {"id": "gone", "rules": [{"id": "all", **RULE}]}
    etag = done(one.admin("POST", "/v1/clients", body), 201).headers["etag"]
    assert one.admin("DELETE", "/v1/clients/gone").status == 204
    caller = Caller(other.admin_port, "b")
    try:
        target = "/v1/clients/gone/policies/all"
        assert caller.ask("PATCH", target, {"limit": 1}).status == 404
        assert caller.ask("PATCH", target, {"limit": 1}, etag).status == 412
        assert caller.ask("PUT", "/v1/clients/gone", {"name": "x"}, etag).status == 412
    finally:
        caller.close()
    await until(lambda: one.admin("GET", "/v1/clients/gone").status == 404, "it stays deleted")
