"""The front while the sidecar starts, stops, waits for its store, or takes over a configuration."""

import pytest

from sidecar.application.ports import StoreUnavailable
from sidecar.domain.rule import OnUnavailable
from sidecar.domain.ruleset import RuleSet
from sidecar.infrastructure.http.client_address import AddressSource
from sidecar.infrastructure.http.front import FrontOptions
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.sources import Sources
from tests.served_front import CLIENTS, Served


@pytest.mark.parametrize("target", ["/authz/x", "/ready", "/nowhere"])
async def test_answers_close_their_connection_once_the_sidecar_stops(front: Served, target: str) -> None:
    """Before that they keep it, so the proxy takes its next request elsewhere only then."""
    assert "connection" not in (await front.ask("GET", target)).headers
    front.readiness.serving = False
    assert (await front.ask("GET", target)).headers["connection"] == "close"


EVALUATE = b'{"client_id": "%b", "route": "/x", "method": "GET", "identifier": {"type": "none"}}'


@pytest.mark.parametrize(
    ("on_unavailable", "status"), [(OnUnavailable.ALLOW, 200), (OnUnavailable.DENY, 503)]
)
async def test_until_the_store_was_read_an_unknown_client_is_not_said_to_be_none(
    front: Served, on_unavailable: OnUnavailable, status: int
) -> None:
    """The API may have made it: it is decided as without the store, a known one by its rules."""
    front.evaluator.rule_set = RuleSet(CLIENTS, complete=False)
    front.without_store.default = on_unavailable
    unknown = await front.ask("POST", "/v1/evaluate", body=EVALUATE % b"unknown")
    assert (unknown.status, unknown.json["reason"]) == (status, "storage_unavailable")
    assert (await front.ask("GET", "/clients/unknown/authz/x")).status == status
    assert (await front.ask("POST", "/v1/evaluate", body=EVALUATE % b"c")).json["remaining"] == 1


async def test_once_the_store_was_read_an_unknown_client_is_a_404(front: Served) -> None:
    """Of a proxy's request it is `no_policy`."""
    assert (await front.ask("POST", "/v1/evaluate", body=EVALUATE % b"unknown")).status == 404
    assert (await front.ask("GET", "/clients/unknown/authz/x")).status == 200


async def test_sources_and_the_status_without_the_store_are_changed_in_between(front: Served) -> None:
    """A new configuration holds for the very next request."""
    front.front.options = FrontOptions(sources=Sources(address=AddressSource(header=None)))
    await front.ask("GET", "/authz/x", {"X-Forwarded-For": "192.0.2.9"})
    assert str(front.watcher.decided_requests[-1][0].address) == "192.0.2.9"
    front.front.options = FrontOptions(response=ResponseOptions(unavailable_status=500))
    front.store.problem = StoreUnavailable("away")
    assert (await front.ask("GET", "/clients/closed/authz/x")).status == 500
