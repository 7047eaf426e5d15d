"""A store of a module's own, and two sidecars on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import StoreServer
from tests.replicas import replicas
from tests.sidecar_process import SidecarProcess


@pytest.fixture(scope="module")
def store(valkey_binary: Path) -> Iterator[StoreServer]:
    """For tests that may stop it, or that several sidecars share."""
    with StoreServer(valkey_binary) as server:
        yield server


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, store: StoreServer, tmp_path: Path, key_prefix: str
) -> Iterator[list[SidecarProcess]]:
    """Two replicas with the module's `CONFIG`, and keys that no other test has."""
    config = {**request.module.CONFIG, "store": {"key_prefix": key_prefix}}
    with replicas(tmp_path, config, [store.url] * 2) as sidecars:
        yield sidecars
