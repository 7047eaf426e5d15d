"""Envoy with `envoy.yaml`, which is the recipe's output with the defaults."""

from pathlib import Path

from tests.proxies.process import DEPLOY, Proxy


def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
    file = DEPLOY.parent / "envoy.yaml" if fail_open else DEPLOY / "envoy" / "fail-closed" / "envoy.yaml"
    return started_with(program, file)


def started_with(program: Path, file: Path) -> list[str]:
    options = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn")
    return [str(program), "-c", str(file), *options]


ENVOY = Proxy(
    name="envoy-1.40",
    program="envoy",
    command=command,
    # What was answered before its end ends the connection: Envoy reads no rest of it.
    kept_after_refused_body=False,
    kept_after_refused_upgrade=False,
)
PROXIES = [ENVOY]
