"""The outside programs, one Redis and one Valkey for the session, and a fresh key prefix for each test."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import StoreServer, require


@pytest.fixture(scope="session")
def valkey_binary() -> Path:
    return require("valkey")


@pytest.fixture(scope="session")
def redis_binary() -> Path:
    return require("redis")


@pytest.fixture(scope="session")
def envoy_binary() -> Path:
    return require("envoy")


@pytest.fixture(scope="session", params=["valkey", "redis"])
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once on each. Servers are shared: keys go under `key_prefix`, nothing is flushed."""
    with StoreServer(require(request.param)) as server:
        yield server.url


@pytest.fixture
def key_prefix() -> str:
    """No other test has it."""
    return f"t{uuid.uuid4().hex[:12]}"
