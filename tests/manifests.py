"""Manifests of Kubernetes, and what they are held to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.proxies.process import DEPLOY

SCHEMAS = Path(__file__).parent / "schemas"
RECIPES = ("envoy-gateway", "istio", "kubernetes")
FILES = sorted(file for recipe in RECIPES for file in (DEPLOY / recipe).rglob("*.yaml"))
#: Where the manifests mount the Secret.
MOUNTED = "/run/secrets/ratelimit"
SECRETS = {
    "redis-url": "rediss://sidecar:a-password@redis.example.com:6380/0",
    "admin-key": "an-admin-key-of-the-tests",
    "proxy-secret": "a-secret-of-the-proxy",
}


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def schemas() -> dict[str, Any]:
    """`apiVersion kind` → schema; `meshConfig` is Istio's own configuration."""
    found: dict[str, Any] = {}
    for file in SCHEMAS.glob("*.yaml"):
        found |= yaml.safe_load(file.read_text("utf-8"))
    return found


def of_kind(kind: str, text: str) -> list[Any]:
    return [document for document in documents(text) if document.get("kind") == kind]


def configuration(text: str, directory: Path) -> str:
    """The sidecar's, from the ConfigMap, with the Secret in that directory."""
    (config_map,) = of_kind("ConfigMap", text)
    for name, value in SECRETS.items():
        (directory / name).write_text(f"{value}\n")
    written: str = config_map["data"]["sidecar.yaml"]
    return written.replace(MOUNTED, str(directory))


def pod(text: str) -> Any:
    (deployment,) = of_kind("Deployment", text)
    return deployment["spec"]["template"]["spec"]


def containers(text: str) -> Iterator[Any]:
    spec = pod(text)
    yield from spec.get("initContainers", ())
    yield from spec["containers"]


def sidecar_container(text: str) -> Any:
    (found,) = (container for container in containers(text) if container["name"] == "sidecar")
    return found


def ports(container: Any) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container.get("ports", ())}
