"""Envoys as people might have them: envoy.yaml with something added, and an Envoy in front of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from sidecar.infrastructure.recipes import Recipe, render
from tests.envoy_process import listens
from tests.parts import free_port
from tests.proxies.envoy import started_with
from tests.proxies.process import PROXY_PORT, Proxy

#: A parsed envoy.yaml, which is changed in place.
Change = Callable[[Any], None]


def recipe_with(change: Change, recipe: Recipe = Recipe()) -> tuple[Proxy, int]:  # noqa: B008 frozen
    """On a port of its own, so that it can run beside another one."""
    configuration = yaml.safe_load(render("envoy", recipe)["envoy.yaml"])
    change(configuration)
    return _on_a_free_port("envoy-changed", configuration)


def front(retry_policy: dict[str, Any]) -> tuple[Proxy, int]:
    """An Envoy before the one on the usual port."""
    return _on_a_free_port("envoy-front", _passing_on(retry_policy))


def _on_a_free_port(name: str, configuration: Any) -> tuple[Proxy, int]:
    port = free_port()
    configuration["static_resources"]["listeners"][0]["address"] = _loopback(port)

    def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
        file = directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(configuration, sort_keys=False))
        return started_with(program, file)

    return Proxy(name=name, program="envoy", command=command, ready=lambda: listens(port)), port


def connection_manager(configuration: Any) -> Any:
    return configuration["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]


def virtual_host(configuration: Any) -> Any:
    return connection_manager(configuration)["route_config"]["virtual_hosts"][0]


def route(configuration: Any) -> Any:
    """What the one route does."""
    return virtual_host(configuration)["routes"][0]["route"]


def service(configuration: Any) -> Any:
    """Where ext_authz asks."""
    return connection_manager(configuration)["http_filters"][0]["typed_config"]["http_service"]


def ask_at(configuration: Any, port: int) -> None:
    """Let ext_authz ask there instead."""
    cluster = configuration["static_resources"]["clusters"][0]
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = _loopback(port)


def _passing_on(retry_policy: dict[str, Any]) -> Any:
    types = "type.googleapis.com/envoy.extensions.filters"
    to_recipe = {"match": {"prefix": "/"}, "route": {"cluster": "recipe", "retry_policy": retry_policy}}
    router = {"@type": f"{types}.http.router.v3.Router"}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [to_recipe]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoint = {"endpoint": {"address": _loopback(PROXY_PORT)}}
    endpoints = {"cluster_name": "recipe", "endpoints": [{"lb_endpoints": [endpoint]}]}
    return {
        "static_resources": {
            "listeners": [{"name": "front", "filter_chains": [chain]}],
            "clusters": [{"name": "recipe", "type": "STATIC", "load_assignment": endpoints}],
        }
    }


def _loopback(port: int) -> Any:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
