"""A rule with `max_identifiers` on a running sidecar: what callers and operators see of a flood."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import until
from tests.replicas import done
from tests.sidecar_process import SidecarProcess

CAP = 20
RULE: dict[str, Any] = {
    "id": "r",
    "route": "/*",
    "identifier_type": "session_id",
    "limit": 3,
    "window_seconds": 3600,
    "max_identifiers": CAP,
}
CONFIG: dict[str, Any] = {"default_client": "c", "clients": [{"id": "c", "rules": [RULE]}]}
ALARM = "a rule counts very many identifiers"


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path, CONFIG) as running:
        yield running


def status(sidecar: SidecarProcess, session: str, address: str) -> int:
    return sidecar.ask("GET", "/authz/", {"X-Session-Id": session, "X-Client-IP": address}).status


def counter(sidecar: SidecarProcess, session: str, address: str) -> dict[str, Any]:
    """What `explain` says of the rule's counter for this caller."""
    identifier = {"type": "session_id", "session_id": session, "ip": address}
    asked = {"client_id": "c", "route": "/", "identifier": identifier}
    shown: dict[str, Any] = done(sidecar.admin("POST", "/v1/explain", asked)).json["rules"][0]["counter"]
    return shown


def gauges(sidecar: SidecarProcess) -> list[str]:
    lines = done(sidecar.admin("GET", "/metrics")).body.decode().splitlines()
    return [line for line in lines if line.startswith("rate_limit_live_identifiers")]


async def test_newcomers_of_a_crowded_rule_share_their_address(sidecar: SidecarProcess) -> None:
    """Explain and the list of identifiers say so, one gauge and one line of the log too; a reset ends it."""
    assert status(sidecar, "first", "192.0.2.1") == 200
    for number in range(3 * CAP):
        status(sidecar, f"flood-{number}", "192.0.2.99")
    assert [status(sidecar, f"new-{n}", "192.0.2.50") for n in range(4)] == [200, 200, 200, 429]
    newcomer = counter(sidecar, "new-9", "192.0.2.50")
    assert (newcomer["identifier"], newcomer["used"], newcomer["fits"]) == ("~ip=192.0.2.50", 3, False)
    first = counter(sidecar, "first", "192.0.2.50")
    assert (first["used"], first["fits"]) == (1, True)
    assert not first["identifier"].startswith("~")
    listed = done(sidecar.admin("GET", "/v1/clients/c/policies/r/identifiers")).json["identifiers"]
    assert {"~ip=192.0.2.50", "~ip=192.0.2.99"} <= {each["identifier"] for each in listed}
    assert len(listed) <= CAP + 1 + 2
    await until(lambda: bool(sidecar.logged(ALARM)), "it is an alarm")
    (gauge,) = gauges(sidecar)
    assert gauge.startswith('rate_limit_live_identifiers{client="c",rule="r"} ')
    assert float(gauge.rpartition(" ")[2]) > CAP
    done(sidecar.admin("DELETE", "/v1/clients/c/counters"))
    await until(lambda: status(sidecar, "after", "192.0.2.50") == 200, "the reset is in force")
    await until(lambda: counter(sidecar, "x", "192.0.2.50")["identifier"][0] != "~", "it is over")
    assert len(sidecar.logged(ALARM)) == 1


def test_a_cap_on_addresses_is_refused(sidecar: SidecarProcess) -> None:
    """They are what newcomers are counted by; the API says it as the file would."""
    made = {"route": "/x", "identifier_type": "ip", "limit": 1, "window_seconds": 1, "max_identifiers": 5}
    reply = sidecar.admin("POST", "/v1/clients/c/policies", made)
    assert reply.status == 422
    assert [error["field"] for error in reply.json["errors"]] == ["max_identifiers"]
