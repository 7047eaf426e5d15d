"""HAProxy with the two files of `deploy/haproxy`, which it reads where they stand."""

from pathlib import Path
from typing import Any

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.process import DEPLOY, Proxy


def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
    return started(program, DEPLOY / "haproxy" / ("" if fail_open else "fail-closed"))


def started(program: Path, folder: Path) -> list[str]:
    return [str(program), "-db", "-f", str(folder / "haproxy.cfg")]


def rendered(**values: Any) -> Proxy:
    """HAProxy with these values in the recipe."""

    def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
        for name, text in render("haproxy", Recipe(fail_open=fail_open, **values)).items():
            (directory / name).write_text(text)
        return started(program, directory)

    return Proxy(name="haproxy-rendered", program="haproxy", command=command)


HAPROXY = Proxy(
    name="haproxy",
    program="haproxy",
    command=command,
    # It answers at once and reads no rest of the body, which ends the connection.
    kept_after_refused_body=False,
)
PROXIES = [HAPROXY]
