"""Envoy Gateway's Envoy as it would be with deploy/envoy-gateway: a real Envoy, a real sidecar."""

from pathlib import Path

import pytest

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.checks import counted
from tests.proxies.lab import BY_ADDRESS, LIMIT, LIMITED, Lab, a_session, by_address
from tests.proxies.matrix import FAIL_CLOSED, FAIL_OPEN, SCENARIOS, Place, Scenario, check
from tests.proxies.mesh import ENVOY_GATEWAY, documents, envoy_gateway, started
from tests.proxies.process import Proxy


def behind(program: Path, directory: Path, fail_open: bool) -> list[str]:
    """The recipe without a header of its own, with a load balancer in front; nothing is patched."""
    recipe = Recipe(address_header=None, fail_open=fail_open)
    policies = documents(render("envoy-gateway", recipe)["security-policy.yaml"])
    return started(program, directory, envoy_gateway(policies, hops=1))


BEHIND_ONE = Proxy(
    name="envoy-gateway-behind",
    program="envoy",
    command=behind,
    config={"client_ip": {"header": None, "trusted_hops": 2}},
)
OPEN = pytest.mark.parametrize("laboratory", [Place(ENVOY_GATEWAY, True)], indirect=True)
BEHIND = pytest.mark.parametrize("laboratory", [Place(BEHIND_ONE, True)], indirect=True)
CLOSED = pytest.mark.parametrize("laboratory", [Place(ENVOY_GATEWAY, False)], indirect=True)


@OPEN
@pytest.mark.parametrize("scenario", [*SCENARIOS, FAIL_OPEN], ids=lambda scenario: scenario.name)
def test_a_client_sees(laboratory: Lab, scenario: Scenario) -> None:
    """Status, headers, and whether its connection is kept."""
    check(laboratory, scenario)


@OPEN
def test_what_applications_read_in_two_ways_is_refused(laboratory: Lab) -> None:
    """By the Gateway itself: nobody is asked."""
    with counted(laboratory.sidecar) as checks:
        assert [laboratory.ask("GET", target).status for target in ("/a%2Fb", "/a%5cb")] == [400, 400]
    assert checks.number == 0


@OPEN
def test_a_caller_cannot_choose_its_address(laboratory: Lab) -> None:
    """Whatever it sends, the Gateway says who is connected: four requests are four of one address."""
    assert by_address(laboratory, "X-Client-IP", "X-Forwarded-For") == [200, 200, 200, 429]


@CLOSED
def test_fail_closed_means_that_nobody_passes_without_the_sidecar(laboratory: Lab) -> None:
    """They get the status that the manifest says."""
    check(laboratory, FAIL_CLOSED)


@BEHIND
def test_behind_a_load_balancer_the_address_is_its_entry_of_x_forwarded_for(laboratory: Lab) -> None:
    """What clients write themselves is left of it, and changes nothing."""
    for client in ("203.0.113.7", "203.0.113.8"):
        forwarded = [f"9.9.9.{n}, {client}" for n in range(4)]
        asked = [a_session() | {"X-Forwarded-For": written} for written in forwarded]
        replies = [laboratory.ask("GET", BY_ADDRESS, headers) for headers in asked]
        assert [reply.status for reply in replies] == [200, 200, 200, 429]


@BEHIND
def test_without_the_patch_only_refusals_have_numbers(laboratory: Lab) -> None:
    """A SecurityPolicy cannot say otherwise."""
    session = a_session()
    replies = [laboratory.ask("GET", LIMITED, session) for _ in range(LIMIT + 1)]
    limits = [(reply.status, reply.headers.get("x-ratelimit-limit")) for reply in replies]
    assert limits == [(200, None)] * LIMIT + [(429, str(LIMIT))]
