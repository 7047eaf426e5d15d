"""A target: inputs, what has to hold for each of them, and how both are run."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

#: Inputs between two looks at the clock.
BATCH = 200


@dataclass(frozen=True, slots=True)
class Target:
    """`holds` raises for an input that something goes wrong with."""

    name: str
    inputs: SearchStrategy[Any]
    holds: Callable[[Any], None]
    #: How many inputs take as long as one of a quick target.
    slowness: int = 1


def run(target: Target, examples: int, start: int) -> int:
    """So many inputs, always the same for a `start`; says how many were tried. Raises what `holds` raised."""
    tried = 0

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(target.inputs)
    def check(value: Any) -> None:
        nonlocal tried
        tried += 1
        target.holds(value)

    check()
    return tried


def run_for(target: Target, seconds: float) -> int:
    """As many inputs as fit, always other ones."""
    end, tried = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        tried += run(target, max(1, BATCH // target.slowness), random.getrandbits(32))
    return tried
