"""Counters of what happens with every decision.

The library's own take a lock for each event, which costs as much as finding the rules of a request. All
decisions of a process are made in one thread, so nothing is lost without one; the page reads the numbers when
it is made. Where other processes read them, out of files, the library's own are needed all the same.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class Series(Protocol):
    """One counter of a family."""

    def inc(self) -> None: ...


class Family(Protocol):
    def labels(self, *values: str) -> Series: ...


def counters(name: str, told: str, labels: Sequence[str], registry: CollectorRegistry) -> Family:
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return Counter(name, told, labels, registry=registry)
    family = _Tallies(name, told, labels)
    registry.register(family)
    return family


class _Tally:
    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def inc(self) -> None:
        self.number += 1


class _Tallies(Collector):
    def __init__(self, name: str, told: str, labels: Sequence[str]) -> None:
        self._name, self._told, self._labels = name, told, labels
        self._all: dict[tuple[str, ...], _Tally] = {}

    def labels(self, *values: str) -> _Tally:
        return self._all.setdefault(values, _Tally())

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._told, labels=self._labels)
        for values, tally in list(self._all.items()):
            family.add_metric(values, tally.number)
        yield family
