"""ingress-nginx as it would be with deploy/ingress-nginx: what it sends, and its snippets in a real NGINX."""

from collections.abc import Iterator

import pytest

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.ingress_nginx import PROXIES, check_headers, manifest, without_snippets
from tests.proxies.lab import BY_ADDRESS, CONFIG, LIMIT, LIMITED, Lab, a_session, by_address, merged
from tests.proxies.matrix import FAIL_CLOSED, FAIL_OPEN, SCENARIOS, Place, Scenario, check
from tests.proxies.process import DEPLOY, PROXY_PORT
from tests.raw_http import without_host
from tests.sidecar_process import SidecarProcess

#: What an Ingress (`proxy-body-size`) and its controller (`large-client-header-buffers`) say for themselves.
OTHERS = ("POST of 2 MB", "POST of 2 MB, refused", "target of 60 kB")
OURS = [scenario for scenario in SCENARIOS if scenario.name not in OTHERS]
HOST = "https://api.example.com"


def places(*, fail_open: bool) -> list[Place]:
    return [Place(proxy, fail_open) for proxy in PROXIES]


def name(place: Place) -> str:
    return place.proxy.name


opened = pytest.mark.parametrize("laboratory", places(fail_open=True), indirect=True, ids=name)
closed = pytest.mark.parametrize("laboratory", places(fail_open=False), indirect=True, ids=name)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """A sidecar for a controller that allows no snippets."""
    config = {key: value for key, value in CONFIG.items() if key != "listen"}
    with SidecarProcess(tmp_path_factory.mktemp("plain"), merged(config, without_snippets())) as sidecar:
        yield sidecar


@pytest.mark.parametrize("fail_open", [True, False])
def test_what_stands_in_deploy_is_what_the_templates_give(fail_open: bool) -> None:
    """With the defaults, each file and no other."""
    folder = DEPLOY / "ingress-nginx" if fail_open else DEPLOY / "ingress-nginx" / "fail-closed"
    files = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}
    assert files == render("ingress-nginx", Recipe(fail_open=fail_open))


@pytest.mark.parametrize("fail_open", [True, False])
def test_the_controller_allows_what_the_ingress_uses(fail_open: bool) -> None:
    """Snippets are off by default, and critical."""
    annotations = manifest("ingress.yaml", fail_open)["metadata"]["annotations"]
    assert all(isinstance(value, str) for value in annotations.values())
    allowed = manifest("controller.yaml", fail_open)["data"]
    assert allowed == {"allow-snippet-annotations": "true", "annotations-risk-level": "Critical"}


def test_what_the_controller_sends_is_understood(plain: SidecarProcess) -> None:
    """Method and target are its own, whatever else its client sent beside them."""
    session = a_session() | {"X-Original-URI": "/free", "X-Client-IP": "9.9.9.9", "X-Forwarded-Uri": "/free"}
    checks = check_headers("GET", f"{HOST}{LIMITED}?x=1", "192.0.2.7") | session
    replies = [plain.ask("GET", "/ingress-nginx", checks) for _ in range(LIMIT + 1)]
    assert [reply.status for reply in replies] == [200] * LIMIT + [403]
    assert all(reply.body == b"" for reply in replies)
    refused = replies[-1].headers
    assert (refused["x-ratelimit-status"], refused["x-ratelimit-rule"]) == ("429", "videos")
    assert (refused["x-ratelimit-limit"], refused["x-ratelimit-remaining"]) == (str(LIMIT), "0")
    assert refused["x-request-id"] == checks["X-Request-ID"]
    assert 3500 < int(refused["retry-after"]) <= 3600


def test_an_address_is_the_one_that_the_controller_saw(plain: SidecarProcess) -> None:
    """Three requests of one, however many others its client claims; then another one's pass."""
    for address in ("192.0.2.8", "192.0.2.9"):
        statuses = []
        for n in range(4):
            claims = {"X-Client-IP": f"9.9.9.{n}", "True-Client-IP": f"8.8.8.{n}"}
            checks = check_headers("GET", f"{HOST}{BY_ADDRESS}", address) | a_session() | claims
            statuses.append(plain.ask("GET", "/ingress-nginx", checks).status)
        assert statuses == [200, 200, 200, 403]


@opened
@pytest.mark.parametrize("scenario", [*OURS, FAIL_OPEN], ids=lambda scenario: scenario.name)
def test_a_client_sees(laboratory: Lab, scenario: Scenario) -> None:
    """Status, headers, and whether its connection is kept."""
    check(laboratory, scenario)


@opened
def test_a_client_that_says_no_host_is_decided_like_any_other(laboratory: Lab) -> None:
    """HTTP/1.0 does not ask for one; the rules are those of the default client."""
    session = a_session()
    statuses = [without_host(PROXY_PORT, LIMITED, session).status for _ in range(LIMIT + 1)]
    assert statuses == [200] * LIMIT + [429]


@opened
def test_a_caller_cannot_choose_its_address(laboratory: Lab) -> None:
    """The snippet says who is connected: four requests are four of one address."""
    assert by_address(laboratory, "X-Client-IP", "X-Forwarded-For") == [200, 200, 200, 429]


@opened
def test_refusals_and_the_applications_own_answers_leave_the_log_empty(laboratory: Lab) -> None:
    """And the application's own numbers do not stand beside ours."""
    before = laboratory.log.read_text()
    session = a_session()
    statuses = [laboratory.ask("GET", LIMITED, session).status for _ in range(50)]
    assert statuses == [200] * LIMIT + [429] * (50 - LIMIT)
    assert laboratory.ask("GET", "/own-limits", session).headers["x-ratelimit-limit"] == "1000"
    assert laboratory.ask("GET", "/a%2Fb", session).status == 400
    assert laboratory.log.read_text() == before


@closed
def test_fail_closed_means_that_nobody_passes_without_the_sidecar(laboratory: Lab) -> None:
    """They get the status that the manifest says."""
    check(laboratory, FAIL_CLOSED)
