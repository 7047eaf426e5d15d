"""One laboratory for all tests in a row that need the same."""

from collections.abc import Iterator

import pytest

from tests.proxies.lab import Lab, lab


@pytest.fixture(scope="module")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """That of the parameter, which is a proxy and whether it fails open."""
    proxy, fail_open = request.param
    with lab(proxy, tmp_path_factory.mktemp(proxy.name), fail_open=fail_open) as running:
        yield running
