"""The fail-closed recipe on each Envoy that it is meant for, with nobody to ask."""

from pathlib import Path

import pytest

from tests.envoy_process import APP_PORT, SIDECAR_PORT, application, require_free
from tests.proxies.envoy_versions import VERSIONS, of_version
from tests.proxies.process import PROXY_PORT, running
from tests.raw_http import ask


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_sidecar_nothing_passes(version: str, tmp_path: Path) -> None:
    """1.37.0 forgets which status it was to be, and answers 403."""
    require_free(PROXY_PORT, SIDECAR_PORT, APP_PORT)
    with application() as asked, running(of_version(version), tmp_path, fail_open=False):
        assert ask(PROXY_PORT, "GET", "/").status == (403 if version == "1.37.0" else 503)
        assert asked == []
