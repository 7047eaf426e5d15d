"""Caddy with its Caddyfile of `deploy/`."""

from pathlib import Path

from tests.proxies.process import DEPLOY, Proxy


def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
    return started(program, directory, DEPLOY / "caddy" / ("" if fail_open else "fail-closed") / "Caddyfile")


def started(program: Path, directory: Path, file: Path) -> list[str]:
    # What it keeps (certificates, its last configuration) is for nobody else.
    homes = [f"{name}={directory}" for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")]
    return ["env", *homes, str(program), "run", "--config", str(file), "--adapter", "caddyfile"]


CADDY = Proxy(
    name="caddy",
    program="caddy",
    command=command,
    # It reads 256 kB of what nobody wants; where more follows, the client is told that it closes.
    kept_after_refused_body=False,
)
PROXIES = [CADDY]
