"""Prometheus metrics. Labels take their values from the configuration, never from traffic.

Of several processes on the same ports, whichever is asked answers for all: each writes its numbers into files
of one folder. What was counted is their sum, a process that died included: the one in its place goes on with
its files. Of what is so now, the worst that a live process says is shown.
"""

import asyncio
import atexit
import contextlib
import os
from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.domain.ruleset import RuleSet
from sidecar.infrastructure.telemetry.tallies import Series, counters

# A series beside each counter that says when it began: twice the series, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

# Not by process id, as the library would have it: those that die would leave their files behind, ever more.
if (worker := os.environ.get("SIDECAR_WORKER")) and os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
    values.ValueClass = values.MultiProcessValue(lambda: worker)  # type: ignore[no-untyped-call]
    atexit.register(values.close_all_multiprocess_files)

# A decision should take well under a millisecond of the store, and may take `timeout_ms`.
_LATENCY_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


_ALLOWED = Reason.ALLOWED
#: Used, as part of the limit, from which a rule counts as near it: 4 of 5.
NEAR_PART, NEAR_WHOLE = 4, 5

# Name, what it says, labels.
_REQUESTS = "rate_limit_requests", "Requests decided.", ("result", "client", "rule", "reason")
_SHADOW_REFUSALS = (
    "rate_limit_shadow_refusals",
    "Requests that a shadow rule would have refused.",
    ("client", "rule"),
)
_NEAR_LIMIT = (
    "rate_limit_near_limit",
    "Requests that a rule admitted with no more than a fifth of its limit left after them.",
    ("client", "rule"),
)
_STORE_ERRORS = "rate_limit_store_errors", "Decisions made without the store."
_UNREADABLE = "rate_limit_unreadable_addresses", "Requests whose client address could not be read."
_UNREADABLE_TARGETS = (
    "rate_limit_unreadable_targets",
    "Requests for which the proxy did not say method and target in the headers of its dialect.",
    ("dialect",),
)
_REFUSED_PEERS = (
    "rate_limit_refused_peers",
    "Requests to the data port from an address that is not trusted, or without the secret.",
    ("reason",),
)
_CLOSED_FOR_OTHERS = (
    "rate_limit_connections_closed",
    "Connections closed because a port held as many as it may.",
    ("port",),
)
_LATENCY = "rate_limit_redis_latency_seconds", "Time that an answered call to the store took."
_STORE_UP = "rate_limit_store_reachable", "1 while the store answers."
_BREAKERS = "rate_limit_store_breakers_open", "Servers of the store that no request asks at the moment."
_PROCESSES = (
    "rate_limit_live_processes",
    "Processes that share the store; each holds local limits to its share.",
)
_IDENTIFIERS = (
    "rate_limit_live_identifiers",
    "Identifiers that a rule counts, of all processes, about.",
    ("client", "rule"),
)
_LIMIT = (
    "rate_limit_limit",
    "What a rule admits at once: its limit, a token bucket's burst.",
    None,
    (
        "client",
        "rule",
    ),
)
_WINDOW = "rate_limit_window_seconds", "The window of a rule.", None, ("client", "rule")
_EVICTS = "rate_limit_store_evicts", "1 if the store may forget counters when its memory is full."
_STORE_EMBEDDED = "rate_limit_store_embedded", "1 if the store is the embedded one."
_RELOADS = "rate_limit_config_reloads", "Times that a changed configuration was read.", ("result",)
_LAST_RELOAD = "rate_limit_config_last_reload_successful", "1 while the files are what is in force."
_TASKS = "rate_limit_tasks", "Tasks of the process that answers."
_BUILD_INFO = "rate_limit_build_info", "The running version.", ("version",)


class Metrics:
    """An `Observer` that counts, in a registry of its own."""

    def __init__(self, *, embedded: bool) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = counters(*_REQUESTS, registry=registry)
        #: The series of each kind of decision: looking them up by labels costs more than counting.
        self._of_decisions: dict[tuple[bool, str | None, str | None, Reason], Series] = {}
        self._shadow_refusals = Counter(*_SHADOW_REFUSALS, registry=registry)
        self._near_limit = counters(*_NEAR_LIMIT, registry=registry)
        self._near_limits: dict[tuple[str, str], Series] = {}
        self._store_errors = Counter(*_STORE_ERRORS, registry=registry)
        self._unreadable = Counter(*_UNREADABLE, registry=registry)
        self._unreadable_targets = Counter(*_UNREADABLE_TARGETS, registry=registry)
        self._refused_peers = Counter(*_REFUSED_PEERS, registry=registry)
        self._closed_for_others = Counter(*_CLOSED_FOR_OTHERS, registry=registry)
        self._access_failures = Counter(
            "rate_limit_admin_auth_failures",
            "Requests to the admin port without a valid key or token, or beyond what its role may do.",
            ["reason"],
            registry=self._registry,
        )
        self._latency = Histogram(*_LATENCY, registry=registry, buckets=_LATENCY_BUCKETS)
        self._loop = _running_loop()
        self._tasks = Gauge(*_TASKS, registry=registry, multiprocess_mode="livemostrecent")
        self._store_up = Gauge(*_STORE_UP, registry=registry, multiprocess_mode="livemin")
        self._breakers = Gauge(*_BREAKERS, registry=registry, multiprocess_mode="livemax")
        self._processes = Gauge(*_PROCESSES, registry=registry, multiprocess_mode="livemax")
        self._identifiers = Gauge(*_IDENTIFIERS, registry=registry, multiprocess_mode="livemax")
        self._evicts = Gauge(*_EVICTS, registry=registry, multiprocess_mode="livemax")
        self._reloads = Counter(*_RELOADS, registry=registry)
        self._last_reload = Gauge(*_LAST_RELOAD, registry=registry, multiprocess_mode="livemin")
        self._last_reload.set(1)
        self._limits = _Limits()
        registry.register(self._limits)
        Gauge(*_STORE_EMBEDDED, registry=registry, multiprocess_mode="livemax").set(int(embedded))
        Gauge(*_BUILD_INFO, registry=registry, multiprocess_mode="livemax").labels(__version__).set(1)

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        key = decision.allowed, decision.client_id, decision.rule_id, decision.reason
        if (series := self._of_decisions.get(key)) is None:
            series = self._of_decisions[key] = self._requests.labels(
                "allowed" if decision.allowed else "rejected",
                decision.client_id or "",
                decision.rule_id or "",
                decision.reason.value,
            )
        series.inc()
        if decision.reason is not _ALLOWED:
            if decision.without_store:
                self._store_errors.inc()
            return  # no rule counted it, those that only watch neither
        for state in decision.states:
            check, usage = state.check, state.usage
            if not usage.fits:
                if check.shadow:
                    self._shadow_refusals.labels(check.client_id, check.rule.id).inc()
            elif usage.used * NEAR_WHOLE >= check.capacity * NEAR_PART:
                self._near(check).inc()

    def _near(self, check: Check) -> Series:
        key = check.client_id, check.rule.id
        if (series := self._near_limits.get(key)) is None:
            series = self._near_limits[key] = self._near_limit.labels(*key)
        return series

    def rules(self, rule_set: RuleSet) -> None:
        """Those in force."""
        self._limits.rule_set = rule_set

    def store_answered(self, seconds: float) -> None:
        self._latency.observe(seconds)

    def unreadable_address(self) -> None:
        self._unreadable.inc()

    def unreadable_target(self, dialect: str) -> None:
        self._unreadable_targets.labels(dialect).inc()

    def peer_refused(self, reason: str, peer: str) -> None:
        """Not by address: whoever reaches the port may come from any."""
        self._refused_peers.labels(reason).inc()

    def admin_access_failed(self, reason: str, address: str) -> None:
        """Not by address: those are as many as the callers like."""
        self._access_failures.labels(reason).inc()

    def port_crowded(self, port: str, closed: int) -> None:
        self._closed_for_others.labels(port).inc(closed)

    def store_reachable(self, reachable: bool) -> None:
        self._store_up.set(int(reachable))

    def breaker_turned(self, open_ones: int) -> None:
        self._breakers.set(open_ones)

    def live_identifiers(self, client_id: str, rule_id: str, number: int) -> None:
        self._identifiers.labels(client_id, rule_id).set(number)

    def live_processes(self, number: int) -> None:
        self._processes.set(number)

    def store_evicts(self, evicts: bool) -> None:
        self._evicts.set(int(evicts))

    def config_reloaded(self, successful: bool) -> None:
        self._reloads.labels("taken_over" if successful else "refused").inc()
        self._last_reload.set(int(successful))

    def page(self) -> tuple[str, bytes]:
        """Content type and body of `/metrics`."""
        if self._loop is not None:
            self._tasks.set(len(asyncio.all_tasks(self._loop)))
        return CONTENT_TYPE_LATEST, generate_latest(self._of_all_workers() or self._registry)

    def _of_all_workers(self) -> CollectorRegistry | None:
        """With several processes, each has its numbers in files of one folder."""
        if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            return None
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        registry.register(self._limits)
        return registry


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Kept, since the page is made in a thread."""
    with contextlib.suppress(RuntimeError):  # where nothing is served there is none
        return asyncio.get_running_loop()
    return None


class _Limits(Collector):
    """Limits and windows of the rules in force, made when asked for: those of a removed rule are gone."""

    def __init__(self) -> None:
        self.rule_set = RuleSet()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        limits = GaugeMetricFamily(*_LIMIT)
        windows = GaugeMetricFamily(*_WINDOW)
        for client_id, rule in self.rule_set.counting_rules():
            limits.add_metric((client_id, rule.id), rule.terms().capacity)
            windows.add_metric((client_id, rule.id), rule.window_seconds or 0)
        yield limits
        yield windows
