"""Several sidecars on one store."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.raw_http import Reply
from tests.sidecar_process import SidecarProcess


@contextmanager
def replicas(
    directory: Path, config: Mapping[str, Any], stores: Sequence[str]
) -> Iterator[list[SidecarProcess]]:
    """One for each address of the store (several, where each has a way of its own to it), all ready."""
    with ExitStack() as stack:
        yield [stack.enter_context(replica(directory, config, store)) for store in stores]


def replica(directory: Path, config: Mapping[str, Any], store: str) -> SidecarProcess:
    """One more, not started."""
    own = directory / f"replica-{len(list(directory.glob('replica-*')))}"
    own.mkdir(parents=True)
    return SidecarProcess(own, {**config, "store": {**config.get("store", {}), "url": store}})


def done(reply: Reply, status: int = 200) -> Reply:
    """The reply, if it has this status."""
    assert reply.status == status, reply.body
    return reply


def limit_of(sidecar: SidecarProcess, target: str = "/authz/x", host: str = "test.example") -> int | None:
    """The limit that the next request is decided by, `None` where it is decided by none."""
    limit = sidecar.ask("GET", target, {"Host": host}).headers.get("x-ratelimit-limit")
    return int(limit) if limit else None
