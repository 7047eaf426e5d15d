"""One laboratory for all tests in a row that need the same."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.proxies.lab import Backgrounds, Lab, lab


@pytest.fixture(scope="module")
def backgrounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backgrounds]:
    """What a module's proxies have behind them, one proxy after the other."""
    with closing(Backgrounds(lambda: tmp_path_factory.mktemp("background"))) as shared:
        yield shared


@pytest.fixture(scope="module")
def laboratory(
    request: pytest.FixtureRequest, backgrounds: Backgrounds, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """That of the parameter, which is a proxy and whether it fails open."""
    proxy, fail_open = request.param
    directory = tmp_path_factory.mktemp(proxy.name)
    with lab(proxy, directory, fail_open=fail_open, shared=backgrounds) as running:
        yield running
