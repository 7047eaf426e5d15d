"""A few hundred inputs for every reader, always the same ones; `python -m tests.fuzz` tries more."""

from pathlib import Path

import pytest

from tests.fuzz import admin_port
from tests.fuzz.running import BATCH, run
from tests.fuzz.targets import TARGETS
from tests.sidecar_process import SidecarProcess


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_that_is_read_breaks_the_reader(name: str) -> None:
    target = TARGETS[name]
    assert run(target, BATCH // target.slowness, 5) > 0


def test_nothing_that_is_sent_breaks_the_admin_port(tmp_path: Path) -> None:
    """Nor is anything logged as an error, which the end of the process looks for."""
    with SidecarProcess(tmp_path, admin_port.CONFIG) as sidecar:
        assert run(admin_port.target(sidecar), BATCH, 5) > 0
