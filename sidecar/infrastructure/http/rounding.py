"""Microseconds as callers see them: whole seconds, rounded up once, here.

Up, because waiting that long must be enough; Envoy and most clients read nothing but integers.
"""

from sidecar.domain.algorithms import SECOND_US


def seconds(microseconds: int) -> int:
    return -(-microseconds // SECOND_US)
