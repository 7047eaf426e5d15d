"""How often a sidecar was asked, by its own count, and how often it charged."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.proxies.lab import Lab
from tests.raw_http import Headers
from tests.sidecar_process import SidecarProcess


@dataclass
class Checks:
    """`number` is known after the block."""

    number: int = 0


@contextmanager
def counted(sidecar: SidecarProcess) -> Iterator[Checks]:
    """The requests that were decided within the block."""
    checks = Checks()
    before = _decided(sidecar)
    yield checks
    checks.number = _decided(sidecar) - before


def charged(lab: Lab, session: Headers) -> int:
    """What the session has used of a thousand; the asking itself is charged after it."""
    remaining = lab.sidecar.ask("GET", "/authz/asking", session).headers["x-ratelimit-remaining"]
    return 999 - int(remaining)


def _decided(sidecar: SidecarProcess) -> int:
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    lines = [line for line in page.splitlines() if line.startswith("rate_limit_requests_total{")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))
