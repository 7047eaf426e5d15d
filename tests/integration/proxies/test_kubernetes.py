"""A sidecar with the configuration of deploy/kubernetes, asked as the kubelet and Prometheus ask it."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.manifests import SECRETS, configuration, of_kind, ports, sidecar_container
from tests.proxies.process import DEPLOY
from tests.raw_http import Reply, ask
from tests.sidecar_process import SidecarProcess

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
ADMIN = {"X-Admin-Key": SECRETS["admin-key"]}


def read(name: str) -> str:
    return (DEPLOY / "kubernetes" / name).read_text("utf-8")


@pytest.fixture(scope="module", params=["shared.yaml", "beside.yaml"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def sidecar(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """All as in the ConfigMap but for the store."""
    directory = tmp_path_factory.mktemp("kubernetes")
    config: dict[str, Any] = yaml.safe_load(configuration(read(name), directory))
    del config["store"]["url"]
    with SidecarProcess(directory, config) as running:
        yield running


def probed(text: str, probe: str) -> Reply:
    """Asked as the kubelet asks."""
    container = sidecar_container(text)
    asked = container[probe]["httpGet"]
    return ask(ports(container)[asked["port"]], "GET", asked["path"], {"User-Agent": "kube-probe/1.37"})


def test_probes_find_the_sidecar_well(sidecar: SidecarProcess, name: str) -> None:
    """Each on the port and at the path that the manifest says."""
    assert [probed(read(name), probe).status for probe in PROBES] == [200, 200, 200]


def test_prometheus_reads_the_metrics_without_a_key(sidecar: SidecarProcess, name: str) -> None:
    """Of the admin port that is all it can do."""
    (monitor,) = of_kind("ServiceMonitor", read("monitoring.yaml"))
    port = ports(sidecar_container(read(name)))["admin"]
    page = ask(port, "GET", monitor["spec"]["endpoints"][0]["path"], {"Host": "10.1.2.3:8001"})
    assert page.status == 200
    assert b"rate_limit_" in page.body
    assert ask(port, "GET", "/v1/clients").status == 403
    assert ask(port, "GET", "/v1/clients", ADMIN).status == 200


def test_a_proxy_gets_a_decision_and_nobody_gets_anything_else(sidecar: SidecarProcess) -> None:
    """Of the data port's APIs only that for proxies is served."""
    asked = {"X-Client-IP": "203.0.113.7"}
    assert ask(sidecar.port, "GET", "/authz/x", asked).headers["x-ratelimit-limit"] == "100"
    assert ask(sidecar.port, "POST", "/v1/evaluate", asked, b"{}").status == 404
