"""A few hundred inputs for every reader, always the same ones; `python -m tests.fuzz` tries more."""

import pytest

from tests.fuzz.running import BATCH, run
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_that_is_read_breaks_the_reader(name: str) -> None:
    target = TARGETS[name]
    assert run(target, BATCH // target.slowness, 5) > 0
