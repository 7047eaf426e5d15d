"""The files that people deploy: they load where they are used, and agree with each other."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar import demo, sample_service
from sidecar.assets import asset
from sidecar.infrastructure.config.loading import Configuration, load

ROOT = Path(__file__).parents[2]


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = read("docker-compose.yml")["services"]
    return found


def loaded(path: Path) -> Configuration:
    return load(path, {"SIDECAR_ADMIN_KEY": "a-key-for-tests"})


def test_envoy_accepts_its_configuration(envoy_binary: Path) -> None:
    checked = subprocess.run(
        [envoy_binary, "--mode", "validate", "--log-level", "warn", "--config-path", ROOT / "envoy.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    # Deprecated settings and missing limits would be warned of.
    assert checked.stderr == ""


def envoy_ports() -> dict[str, int]:
    resources = read("envoy.yaml")["static_resources"]
    ports = {"listener": resources["listeners"][0]["address"]["socket_address"]["port_value"]}
    for cluster in resources["clusters"]:
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        ports[cluster["name"]] = endpoint["address"]["socket_address"]["port_value"]
    return ports


def test_envoy_and_the_demo_mean_the_same_ports() -> None:
    listen = loaded(asset("sidecar.yaml")).settings.listen
    assert envoy_ports() == {
        "listener": demo.ENVOY_PORT,
        "app": sample_service.PORT,
        "sidecar": listen.authz_endpoint.port,
    }


@pytest.mark.parametrize("path", ["config/sidecar.yaml", "deploy/compose/sidecar.yaml"])
def test_a_configuration_loads_without_a_warning(path: str) -> None:
    configuration = loaded(ROOT / path)
    assert configuration.warnings == ()
    assert configuration.settings.admin.keys


@pytest.mark.parametrize("path", ["config/sidecar.yaml", "deploy/compose/sidecar.yaml"])
def test_a_configuration_loads_without_an_environment(path: str) -> None:
    assert load(ROOT / path, {}).clients


def test_what_compose_mounts_and_builds_from_is_there(services: dict[str, Any]) -> None:
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    files = [path for path in mounted if path.startswith("./")] + [services["sidecar"]["build"]["dockerfile"]]
    assert [path for path in files if not (ROOT / path).is_file()] == []


def test_in_compose_the_data_port_stays_on_loopback(services: dict[str, Any]) -> None:
    listen = loaded(ROOT / "deploy/compose/sidecar.yaml").settings.listen
    assert listen.authz == f"127.0.0.1:{envoy_ports()['sidecar']}"
    for name in ("sidecar", "sample-service"):
        assert services[name]["network_mode"] == "service:envoy"
    published = [port.split(":")[-1] for port in services["envoy"]["ports"]]
    assert published == [str(envoy_ports()["listener"]), str(listen.admin_endpoint.port)]


def test_prometheus_asks_the_admin_port_of_compose() -> None:
    listen = loaded(ROOT / "deploy/compose/sidecar.yaml").settings.listen
    job = read("deploy/compose/prometheus.yml")["scrape_configs"][0]
    assert job["static_configs"][0]["targets"] == [f"envoy:{listen.admin_endpoint.port}"]


def test_the_redis_of_compose_keeps_counters_and_never_evicts(services: dict[str, Any]) -> None:
    command = services["redis"]["command"]
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert settings["--appendonly"] == "yes"
    assert settings["--maxmemory-policy"] == "noeviction"
