"""Traefik with the two files of `deploy/`, which it looks for where it is started."""

import shutil
from pathlib import Path

from tests.proxies.process import DEPLOY, PROXY_PORT, Proxy
from tests.raw_http import ask


def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
    folder = DEPLOY / "traefik" / ("" if fail_open else "fail-closed")
    for name in ("traefik.yaml", "dynamic.yaml"):
        shutil.copy(folder / name, directory)
    return started(program)


def started(program: Path) -> list[str]:
    return [str(program), "--configFile=traefik.yaml"]


def ready() -> bool:
    """It listens before it has read its second file, and knows no route until then."""
    try:
        return ask(PROXY_PORT, "GET", "/ready").status != 404
    except OSError:
        return False


TRAEFIK = Proxy(
    name="traefik",
    program="traefik",
    command=command,
    ready=ready,
    config={"client_ip": {"dialects": {"forward-auth": {"header": None}}}},
    success_headers=False,
    upgrade_headers=False,
    # It reads 256 kB of what nobody wants; where more follows, the client is told that it closes.
    kept_after_refused_body=False,
)
PROXIES = [TRAEFIK]
