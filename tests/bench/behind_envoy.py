"""What a caller of Envoy waits for: with the filter that asks the sidecar, and without it.

The configuration is the repository's own envoy.yaml, but for the ports, and for the application: Envoy itself
answers 200 in its place, so that nothing else is in the figures.
"""

from pathlib import Path
from typing import Any

import yaml

from sidecar.assets import asset
from tests.bench.contenders import config, rule
from tests.bench.load import request
from tests.bench.stage import IDENTIFIERS, Served, Stage, running
from tests.parts import free_port, require

ASKING, BARE = "Envoy and sidecar", "Envoy alone"


def both(stage: Stage) -> list[Served]:
    """Envoy is on the callers' core, the sidecar has its own."""
    store = stage.store()
    process = stage.sidecar(config(rule()), store.url)
    asked = [request("/api/videos", number) for number in range(IDENTIFIERS)]
    return [
        Served(ASKING, *_envoy(stage, process.port), asked),
        Served(BARE, *_envoy(stage, None), asked),
    ]


def _envoy(stage: Stage, sidecar_port: int | None) -> tuple[int, int]:
    port = free_port()
    file = stage.directory / f"envoy-{port}.yaml"
    file.write_text(yaml.safe_dump(configuration(port, sidecar_port)))
    options = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error")
    return port, stage.beside(running([str(require("envoy")), "-c", str(file), *options], port))


def configuration(port: int, sidecar_port: int | None) -> dict[str, Any]:
    """Of the repository, on this port; without a sidecar's port without its filter."""
    whole: dict[str, Any] = yaml.safe_load(Path(asset("envoy.yaml")).read_text())
    resources = whole["static_resources"]
    (listener,) = resources["listeners"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    answered = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    manager["route_config"]["virtual_hosts"][0]["routes"] = [answered]
    if sidecar_port is None:
        manager["http_filters"] = manager["http_filters"][-1:]
    for cluster in resources["clusters"]:
        if cluster["name"] == "sidecar" and sidecar_port:
            endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
            endpoint["address"]["socket_address"]["port_value"] = sidecar_port
    return whole
