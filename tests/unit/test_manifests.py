"""Manifests of deploy/: what their recipes give, valid where they are used, and agreeing with each other."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from sidecar.infrastructure.admin.api import DRAIN_SECONDS as ADMIN_DRAIN_SECONDS
from sidecar.infrastructure.config.listen import Listen
from sidecar.infrastructure.config.loading import Configuration, load
from sidecar.infrastructure.http.server import DRAIN_SECONDS
from sidecar.infrastructure.recipes import Recipe, render
from tests.envoy_process import APP_PORT, ENVOY_PORT, SIDECAR_PORT
from tests.manifests import (
    FILES,
    MOUNTED,
    RECIPES,
    SECRETS,
    configuration,
    containers,
    documents,
    of_kind,
    pod,
    ports,
    schemas,
    sidecar_container,
)
from tests.proxies.process import DEPLOY

SCHEMAS = schemas()
OPEN, CLOSED = Recipe(), Recipe(fail_open=False)
ALL_SET = Recipe(
    sidecar="limits.example.svc.cluster.local:9000",
    client="shop",
    fail_open=False,
    address_header=None,
    secret_header="x-sidecar-secret",
    secret="a-secret-of-the-proxy",
    ietf_headers=True,
    envoy_ratelimited=True,
)
WORKLOADS = ["shared.yaml", "beside.yaml"]


def read(name: str) -> str:
    return (DEPLOY / name).read_text("utf-8")


def validate(document: Any) -> None:
    if "meshConfig" in document:
        jsonschema_rs.validate(SCHEMAS["meshConfig"], document["meshConfig"])
    else:
        jsonschema_rs.validate(SCHEMAS[f"{document['apiVersion']} {document['kind']}"], document)


def loaded(text: str, directory: Path) -> Configuration:
    file = directory / "sidecar.yaml"
    file.write_text(configuration(text, directory))
    return load(file, {})


@pytest.mark.parametrize("name", RECIPES)
def test_deploy_has_what_the_recipe_gives(name: str) -> None:
    """And in fail-closed/ those files that differ there."""
    opened, closed = render(name, OPEN), render(name, CLOSED)
    expected = {Path(file): text for file, text in opened.items()}
    expected |= {Path("fail-closed", file): text for file, text in closed.items() if text != opened[file]}
    found = {
        file.relative_to(DEPLOY / name): file.read_text("utf-8") for file in (DEPLOY / name).rglob("*.yaml")
    }
    assert found == expected


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_a_manifest_is_valid(file: Path) -> None:
    """Every field is known, and of the right type."""
    for document in documents(file.read_text("utf-8")):
        validate(document)


@pytest.mark.parametrize("name", RECIPES)
def test_a_manifest_is_valid_with_everything_set(name: str) -> None:
    for text in render(name, ALL_SET).values():
        for document in documents(text):
            validate(document)


def test_a_misspelt_field_is_seen() -> None:
    """Kubernetes itself would only warn of it."""
    (policy,) = of_kind("SecurityPolicy", read("envoy-gateway/security-policy.yaml"))
    policy["spec"]["extAuth"]["failopen"] = policy["spec"]["extAuth"].pop("failOpen")
    with pytest.raises(jsonschema_rs.ValidationError, match="failopen"):
        validate(policy)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("recipe", [OPEN, CLOSED, ALL_SET], ids=["open", "closed", "all set"])
def test_the_configuration_in_the_config_map_loads_without_a_warning(
    name: str, recipe: Recipe, tmp_path: Path
) -> None:
    """And says what the recipe says."""
    found = loaded(render("kubernetes", recipe)[name], tmp_path)
    assert found.warnings == ()
    settings = found.settings
    assert settings.store.url == SECRETS["redis-url"]
    assert settings.store.on_unavailable.value == ("allow" if recipe.fail_open else "deny")
    assert settings.store.timeout_ms + 100 <= recipe.timeout_ms
    assert settings.client_ip.header == recipe.address_header
    assert (SECRETS["proxy-secret"] in (settings.listen.secret or ())) == bool(recipe.secret)
    assert settings.admin.keys
    assert settings.default_client == (recipe.client or "app") == found.clients[0].id


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_containers_ports_are_those_that_the_sidecar_listens_on(name: str, tmp_path: Path) -> None:
    """A data port that is none of them is on loopback."""
    text = read(f"kubernetes/{name}")
    listen = loaded(text, tmp_path).settings.listen
    named = ports(sidecar_container(text))
    assert named["admin"] == listen.admin_endpoint.port
    assert listen.admin_endpoint.host == "0.0.0.0"
    if "authz" in named:
        assert (listen.authz_endpoint.host, listen.authz_endpoint.port) == ("0.0.0.0", named["authz"])
    else:
        assert (listen.authz_endpoint.host, listen.authz_endpoint.port) == ("127.0.0.1", SIDECAR_PORT)


@pytest.mark.parametrize("name", WORKLOADS)
def test_services_policies_and_budgets_mean_the_pods_that_there_are(name: str) -> None:
    text = read(f"kubernetes/{name}")
    (deployment,) = of_kind("Deployment", text)
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    known = {port for container in containers(text) for port in ports(container)}
    selectors = [deployment["spec"]["selector"]["matchLabels"]]
    selectors += [
        budget["spec"]["selector"]["matchLabels"] for budget in of_kind("PodDisruptionBudget", text)
    ]
    for service in of_kind("Service", text):
        selectors.append(service["spec"]["selector"])
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= known
    for policy in of_kind("NetworkPolicy", text):
        selectors.append(policy["spec"]["podSelector"]["matchLabels"])
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} <= known
    assert len(selectors) == 5
    assert all(selector.items() <= labels for selector in selectors)


def test_prometheus_finds_every_admin_service() -> None:
    """By its label, and by the name of its port."""
    (monitor,) = of_kind("ServiceMonitor", read("kubernetes/monitoring.yaml"))
    (endpoint,) = monitor["spec"]["endpoints"]
    for name in WORKLOADS:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        services = of_kind("Service", read(f"kubernetes/{name}"))
        found = [service for service in services if wanted <= service["metadata"].get("labels", {}).items()]
        assert [[port["name"] for port in service["spec"]["ports"]] for service in found] == [
            [endpoint["port"]]
        ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_container_is_confined(name: str) -> None:
    """As the restricted pod security standard wants it, and with nothing to write to."""
    text = read(f"kubernetes/{name}")
    of_pod = pod(text)["securityContext"]
    assert (of_pod["runAsNonRoot"], of_pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert pod(text)["automountServiceAccountToken"] is False
    for container in containers(text):
        own = of_pod | container["securityContext"]
        assert (own["runAsUser"], own["runAsGroup"]) == (10001, 10001)
        assert own["readOnlyRootFilesystem"] is True
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]["limits"]) == {"memory"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pod_is_given_the_time_that_draining_takes(name: str) -> None:
    """Leaving the Service, then leaving the proxies, then both ports one after the other."""
    text = read(f"kubernetes/{name}")
    (sleep,) = (
        int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        for container in containers(text)
        if "lifecycle" in container
    )
    needed = sleep + Listen().leave_seconds + DRAIN_SECONDS + ADMIN_DRAIN_SECONDS
    assert pod(text)["terminationGracePeriodSeconds"] > needed


@pytest.mark.parametrize("name", WORKLOADS)
def test_secrets_and_configuration_are_mounted_as_folders(name: str) -> None:
    """A single file (subPath) would never change."""
    mounts = {
        mount["mountPath"]: mount for mount in sidecar_container(read(f"kubernetes/{name}"))["volumeMounts"]
    }
    assert set(mounts) == {MOUNTED, "/etc/ratelimit-sidecar"}
    assert all("subPath" not in mount and mount["readOnly"] for mount in mounts.values())


def test_beside_an_application_envoy_yaml_fits_unchanged() -> None:
    """The ports that it has are those of the pod, and the only one to be seen is Envoy's."""
    text = read("kubernetes/beside.yaml")
    (envoy,) = (container for container in containers(text) if container["name"] == "envoy")
    assert ports(envoy) == {"http": ENVOY_PORT}
    assert f"127.0.0.1:{APP_PORT}" in text
    starts_first = [container["name"] for container in pod(text)["initContainers"]]
    assert starts_first == ["sidecar", "envoy"]
    assert {container["restartPolicy"] for container in pod(text)["initContainers"]} == {"Always"}


def shared_service() -> tuple[str, str, int]:
    """Name, namespace and port of what proxies of a mesh ask."""
    service = of_kind("Service", read("kubernetes/shared.yaml"))[0]
    named = service["metadata"]
    return named["name"], named["namespace"], service["spec"]["ports"][0]["port"]


def admitted() -> list[str]:
    """The namespaces whose pods may ask it."""
    (policy,) = of_kind("NetworkPolicy", read("kubernetes/shared.yaml"))
    (namespaces,) = policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"]
    found: list[str] = namespaces["values"]
    return found


def test_istio_asks_the_shared_service() -> None:
    """From a gateway that may, with a provider that there is."""
    name, namespace, port = shared_service()
    (mesh,) = documents(read("istio/extension-provider.yaml"))
    (provider,) = mesh["meshConfig"]["extensionProviders"]
    asked, host = provider["envoyExtAuthzHttp"], f"{name}.{namespace}.svc.cluster.local"
    assert (asked["service"], asked["port"]) == (host, port)
    (rule,) = of_kind("DestinationRule", read("istio/policy.yaml"))
    assert rule["spec"]["host"] == host
    (authorization,) = of_kind("AuthorizationPolicy", read("istio/policy.yaml"))
    assert authorization["spec"]["provider"]["name"] == provider["name"]
    assert authorization["metadata"]["namespace"] in admitted()
    (slashes,) = of_kind("EnvoyFilter", read("istio/policy.yaml"))
    assert slashes["metadata"]["namespace"] == authorization["metadata"]["namespace"]
    selected = authorization["spec"]["selector"]["matchLabels"]
    assert slashes["spec"]["workloadSelector"]["labels"] == selected


def test_envoy_gateway_asks_the_shared_service() -> None:
    """It runs its Envoys in its own namespace, and may refer to the Service from the policy's."""
    name, namespace, port = shared_service()
    text = read("envoy-gateway/security-policy.yaml")
    (policy,) = of_kind("SecurityPolicy", text)
    reference = {"name": name, "namespace": namespace, "port": port}
    assert policy["spec"]["extAuth"]["http"]["backendRefs"] == [reference]
    (grant,) = of_kind("ReferenceGrant", text)
    assert grant["metadata"]["namespace"] == namespace
    assert grant["spec"]["from"][0]["namespace"] == policy["metadata"]["namespace"]
    assert grant["spec"]["to"][0]["name"] == name
    assert "envoy-gateway-system" in admitted()


def test_the_patch_means_the_filter_of_the_policy_in_the_gateway_of_the_policy() -> None:
    (policy,) = of_kind("SecurityPolicy", read("envoy-gateway/security-policy.yaml"))
    (patch,) = of_kind("EnvoyPatchPolicy", read("envoy-gateway/success-headers.yaml"))
    (target,) = policy["spec"]["targetRefs"]
    assert patch["spec"]["targetRef"] == target
    (change,) = patch["spec"]["jsonPatches"]
    assert change["name"].startswith(f"{policy['metadata']['namespace']}/{target['name']}/")
    own = f"securitypolicy/{policy['metadata']['namespace']}/{policy['metadata']['name']}"
    assert f'"envoy.filters.http.ext_authz/{own}"' in change["operation"]["jsonPath"]
