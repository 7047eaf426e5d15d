"""What Istio's and Envoy Gateway's control planes make of our manifests: a configuration for a real Envoy.

They need a cluster to run in; what they write for their Envoys is known (Istio's `extauthz.go`, Envoy
Gateway's `extauth.go` and `listener.go`), and each function here says one part of it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.envoy_process import APP_PORT, SIDECAR_PORT
from tests.proxies.envoy import started_with
from tests.proxies.process import DEPLOY, PROXY_PORT, Proxy

_TYPES = "type.googleapis.com/envoy"
_EXT_AUTHZ = f"{_TYPES}.extensions.filters.http.ext_authz.v3.ExtAuthz"
_ROUTER = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": f"{_TYPES}.extensions.filters.http.router.v3.Router"},
}
_HCM = f"{_TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_EARLY = f"{_TYPES}.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"


def documents(text: str) -> dict[str, Any]:
    """By kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def istio(mesh: Any, policies: dict[str, Any]) -> dict[str, Any]:
    """For an ingress gateway with an extension provider, and what is said of it and of its connections."""
    provider = mesh["meshConfig"]["extensionProviders"][0]["envoyExtAuthzHttp"]
    pool = policies["DestinationRule"]["spec"]["trafficPolicy"]["connectionPool"]
    (change,) = policies["EnvoyFilter"]["spec"]["configPatches"]
    assert (change["applyTo"], change["patch"]["operation"]) == ("NETWORK_FILTER", "MERGE")
    manager = {
        "normalize_path": True,
        "merge_slashes": mesh["meshConfig"]["pathNormalization"]["normalization"] == "MERGE_SLASHES",
        **change["patch"]["value"]["typed_config"],
    }
    sidecar = _cluster("sidecar", SIDECAR_PORT)
    sidecar["connect_timeout"] = pool["tcp"]["connectTimeout"]
    sidecar |= _idle(pool["http"]["idleTimeout"])
    return _envoy(manager, {"name": "ratelimit", "typed_config": _of_provider(provider)}, sidecar)


def _of_provider(provider: Any) -> dict[str, Any]:
    added = sorted(provider["includeAdditionalHeadersInCheck"].items())
    return {
        "@type": _EXT_AUTHZ,
        "transport_api_version": "V3",
        "failure_mode_allow": provider["failOpen"],
        "status_on_error": {"code": int(provider["statusOnError"])},
        "allowed_headers": _named(provider["includeRequestHeadersInCheck"]),
        "http_service": {
            "path_prefix": provider["pathPrefix"],
            "server_uri": {"uri": "http://sidecar", "cluster": "sidecar", "timeout": provider["timeout"]},
            "authorization_request": {
                "headers_to_add": [{"key": key, "value": value} for key, value in added]
            },
            "authorization_response": {
                "allowed_client_headers": _named(provider["headersToDownstreamOnDeny"]),
                "allowed_client_headers_on_success": _named(provider["headersToDownstreamOnAllow"]),
            },
        },
    }


def envoy_gateway(policies: dict[str, Any], patch: Any = None, *, hops: int = 0) -> dict[str, Any]:
    """For a Gateway with a SecurityPolicy, a ClientTrafficPolicy and perhaps an EnvoyPatchPolicy.

    `hops` are the load balancers in front (`clientIPDetection`).
    """
    policy, traffic = policies["SecurityPolicy"], policies["ClientTrafficPolicy"]["spec"]
    place = f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"
    ext_authz = {
        "name": f"envoy.filters.http.ext_authz/securitypolicy/{place}",
        "typed_config": _of_policy(policy["spec"]["extAuth"]),
    }
    settings = policy["spec"]["extAuth"]["http"]["backendSettings"]
    sidecar = _cluster("sidecar", SIDECAR_PORT)
    sidecar["connect_timeout"] = _duration(settings["timeout"]["tcp"]["connectTimeout"])
    sidecar |= _idle(settings["timeout"]["http"]["connectionIdleTimeout"])
    if patch:
        _patch([ext_authz], patch["spec"]["jsonPatches"][0]["operation"])
    return _envoy(_of_traffic(traffic) | {"xff_num_trusted_hops": hops}, ext_authz, sidecar)


def _of_policy(ext_auth: Any) -> dict[str, Any]:
    """All headers of a refusal reach the client, since nothing says which."""
    return {
        "@type": _EXT_AUTHZ,
        "transport_api_version": "V3",
        "failure_mode_allow": ext_auth["failOpen"],
        "status_on_error": {"code": ext_auth["statusOnError"]},
        "allowed_headers": _named(ext_auth["headersToExtAuth"]),
        "http_service": {
            "path_prefix": ext_auth["http"]["path"],
            "server_uri": {
                "uri": "http://sidecar",
                "cluster": "sidecar",
                "timeout": _duration(ext_auth["timeout"]),
            },
        },
    }


def _of_traffic(traffic: Any) -> dict[str, Any]:
    underscores = {"RejectRequest": "REJECT_REQUEST"}[traffic["headers"]["withUnderscoresAction"]]
    early = traffic["headers"].get("earlyRequestHeaders", {}).get("set", [])
    mutations = [
        {
            "append": {
                "header": {"key": header["name"], "value": header["value"]},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        }
        for header in early
    ]
    extension = {"@type": _EARLY, "mutations": mutations}
    return {
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": {"RejectRequest": "REJECT_REQUEST"}[
            traffic["path"]["escapedSlashesAction"]
        ],
        "common_http_protocol_options": {"headers_with_underscores_action": underscores},
        "early_header_mutation_extensions": [
            {"name": "envoy.http.early_header_mutation.header_mutation", "typed_config": extension}
        ]
        if mutations
        else [],
    }


def _patch(filters: Iterable[dict[str, Any]], operation: Any) -> None:
    """As the JSON path says: into the service of the filter that it names."""
    before, _, after = operation["jsonPath"].partition('[?(@.name=="')
    name, _, inside = after.partition('")]')
    assert (operation["op"], before, inside) == ("add", "..http_filters", ".typed_config.http_service")
    (found,) = (one for one in filters if one["name"] == name)
    found["typed_config"]["http_service"][operation["path"].removeprefix("/")] = operation["value"]


def _named(names: Sequence[str]) -> dict[str, Any]:
    """Upper and lower case are one; nothing of ours has a `*`, which would be a prefix to Istio."""
    assert not any("*" in name for name in names)
    return {"patterns": [{"exact": name, "ignore_case": True} for name in names]}


def _duration(text: str) -> str:
    """A Gateway API duration as Envoy writes it."""
    return f"{int(text.removesuffix('ms')) / 1000}s" if text.endswith("ms") else text


def _envoy(manager: dict[str, Any], ext_authz: dict[str, Any], sidecar: dict[str, Any]) -> dict[str, Any]:
    hosts = [{"name": "app", "domains": ["*"], "routes": [_route()]}]
    connection_manager = {
        "@type": _HCM,
        "stat_prefix": "edge",
        "use_remote_address": True,
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [ext_authz, _ROUTER],
        **manager,
    }
    listener = {
        "name": "edge",
        "address": _address(PROXY_PORT),
        "per_connection_buffer_limit_bytes": 32768,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": connection_manager}]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [sidecar, _cluster("app", APP_PORT)]}}


def _route() -> dict[str, Any]:
    return {"match": {"prefix": "/"}, "route": {"cluster": "app"}}


def _cluster(name: str, port: int) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _address(port)}}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _idle(seconds: str) -> dict[str, Any]:
    options = {
        "@type": f"type.googleapis.com/{_HTTP}",
        "explicit_http_config": {"http_protocol_options": {}},
        "common_http_protocol_options": {"idle_timeout": seconds},
    }
    return {"typed_extension_protocol_options": {_HTTP: options}}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def started(program: Path, directory: Path, configuration: dict[str, Any]) -> list[str]:
    """The command that runs Envoy with it."""
    file = directory / "envoy.json"
    file.write_text(json.dumps(configuration))
    return started_with(program, file)


def manifest(proxy: str, name: str, fail_open: bool) -> str:
    return (DEPLOY / proxy / ("" if fail_open else "fail-closed") / name).read_text("utf-8")


def _run_istio(program: Path, directory: Path, fail_open: bool) -> list[str]:
    mesh = yaml.safe_load(manifest("istio", "extension-provider.yaml", fail_open))
    return started(program, directory, istio(mesh, documents(manifest("istio", "policy.yaml", True))))


def _run_envoy_gateway(program: Path, directory: Path, fail_open: bool) -> list[str]:
    policies = documents(manifest("envoy-gateway", "security-policy.yaml", fail_open))
    patch = yaml.safe_load(manifest("envoy-gateway", "success-headers.yaml", True))
    return started(program, directory, envoy_gateway(policies, patch))


#: Of a body, or a WebSocket, that it has refused Envoy reads no rest: it closes the connection.
ISTIO = Proxy(
    name="istio",
    program="envoy",
    command=_run_istio,
    kept_after_refused_body=False,
    kept_after_refused_upgrade=False,
)
ENVOY_GATEWAY = replace(ISTIO, name="envoy-gateway", command=_run_envoy_gateway)
