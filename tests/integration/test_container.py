"""What the image and docker-compose.yml promise: no root, no capabilities, a read-only root, a health check.

No container runs here: the files are read, and the sidecar is watched for files that it writes.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import sidecar_process
from tests.parts import StoreServer, require
from tests.sidecar_process import SidecarProcess, environment

ROOT = Path(__file__).parents[2]
#: Imported by Python as it starts; tells every file that is opened for writing, and every change of a folder.
WATCHER = """
import os, sys

def told(event, args):
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    if event == "open" and isinstance(args[2], int) and args[2] & writing:
        print("WRITES", args[0], file=sys.stderr, flush=True)
    if event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate"):
        print("WRITES", event, args[0], file=sys.stderr, flush=True)

sys.addaudithook(told)
print("WATCHES", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    return found


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """Those of the last stage of the Dockerfile."""
    text = (ROOT / "deploy/Dockerfile").read_text("utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]
    last = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def test_the_image_does_not_run_as_root(instructions: list[tuple[str, str]]) -> None:
    """By number, and nothing after it changes that."""
    users = [rest for name, rest in instructions if name == "USER"]
    assert [user.split(":")[0].isdigit() and int(user.split(":")[0]) > 999 for user in users] == [True]


def test_no_service_may_do_more_than_it_needs(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices"} & service.keys(), name
        assert str(service.get("user", "10001")).split(":")[0] != "0", name


def test_only_the_service_itself_is_reachable_from_elsewhere(services: dict[str, Any]) -> None:
    """Envoy's port is; admin port, Prometheus and Grafana on this machine alone; Redis not at all."""
    published = {port for service in services.values() for port in service.get("ports", [])}
    assert {port for port in published if not port.startswith("127.0.0.1:")} == {"10000:10000"}
    assert "ports" not in services["redis"]


def test_nothing_that_is_mounted_can_be_written_but_data(services: dict[str, Any]) -> None:
    for service in services.values():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            assert rest.endswith(":ro") or source.endswith("-data"), volume


def health_check(instructions: list[tuple[str, str]]) -> list[str]:
    [text] = [rest for name, rest in instructions if name == "HEALTHCHECK"]
    command: list[str] = json.loads(text[text.index("CMD") + 3 :])
    return command


def test_the_image_s_health_check_tells_a_sidecar_that_lives_from_none(
    instructions: list[tuple[str, str]], sidecar: SidecarProcess
) -> None:
    """As it stands there, at another port."""
    _, *arguments = health_check(instructions)

    def checked(port: int) -> int:
        environ = environment(SIDECAR_HEALTH_URL=f"http://127.0.0.1:{port}/health")
        return subprocess.run(
            [sys.executable, *arguments], env=environ, stderr=subprocess.DEVNULL, check=False
        ).returncode

    assert checked(sidecar.port) == 0
    assert checked(1) != 0
    [default] = [rest for name, rest in instructions if name == "ENV" and "HEALTH" in rest]
    assert default == "SIDECAR_HEALTH_URL=http://127.0.0.1:8000/health"


def test_the_health_check_of_compose_tells_a_sidecar_that_is_ready(
    services: dict[str, Any], sidecar: SidecarProcess
) -> None:
    test = services["sidecar"]["healthcheck"]["test"]
    assert test[:2] == ["CMD", "python"]
    arguments = [part.replace(":8000", f":{sidecar.port}") for part in test[2:]]
    subprocess.run([sys.executable, *arguments], env=environment(), check=True)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With a store elsewhere, as in a container, and watched."""
    folder = tmp_path_factory.mktemp("container")
    (folder / "watcher").mkdir()
    (folder / "watcher" / "sitecustomize.py").write_text(WATCHER)
    plain = environment()
    with pytest.MonkeyPatch.context() as patch, StoreServer(require("valkey")) as store:
        path = f"{folder / 'watcher'}:{plain['PYTHONPATH']}"
        patch.setattr(
            sidecar_process,
            "environment",
            lambda **more: environment(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", **more),
        )
        rule = {"id": "r", "route": "/*", "identifier_type": "ip", "limit": 5, "window_seconds": 60}
        config = {
            "store": {"url": store.url},
            "default_client": "c",
            "clients": [{"id": "c", "rules": [rule]}],
        }
        with SidecarProcess(folder, config) as running:
            yield running


def test_serving_writes_no_file(sidecar: SidecarProcess) -> None:
    """Which a read-only root would not let it: for decisions, changes, a reload, metrics."""
    assert sidecar.ask("GET", "/authz/x", {"X-Client-IP": "192.0.2.1"}).status == 200
    assert sidecar.admin("PUT", "/v1/clients/new", {"id": "new"}).status in (200, 201)
    assert sidecar.admin("POST", "/v1/reload").status == 200
    assert sidecar.admin("GET", "/metrics").status == 200
    assert sidecar.admin("GET", "/docs", key=None).status in (200, 404)
    assert "WATCHES" in sidecar.log
    written = [line for line in sidecar.log.splitlines() if line.startswith("WRITES")]
    assert [line for line in written if shlex.split(line)[1] != "/dev/null"] == []
