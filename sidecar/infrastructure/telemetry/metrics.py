"""Prometheus metrics. Labels take their values from the configuration, never from traffic."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sidecar import __version__
from sidecar.domain.decision import Decision, Reason
from sidecar.domain.request import RequestMetadata

# A series beside each counter that says when it began: twice the series, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

# A decision should take well under a millisecond of the store, and may take `timeout_ms`.
_LATENCY_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """An `Observer` that counts, in a registry of its own."""

    def __init__(self, *, embedded: bool) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "rate_limit_requests",
            "Requests decided.",
            ["result", "client", "rule", "reason"],
            registry=self._registry,
        )
        self._shadow_refusals = Counter(
            "rate_limit_shadow_refusals",
            "Requests that a shadow rule would have refused.",
            ["client", "rule"],
            registry=self._registry,
        )
        self._store_errors = Counter(
            "rate_limit_store_errors", "Decisions made without the store.", registry=self._registry
        )
        self._unreadable = Counter(
            "rate_limit_unreadable_addresses",
            "Requests whose client address could not be read.",
            registry=self._registry,
        )
        self._latency = Histogram(
            "rate_limit_redis_latency_seconds",
            "Time that an answered call to the store took.",
            buckets=_LATENCY_BUCKETS,
            registry=self._registry,
        )
        self._store_up = Gauge(
            "rate_limit_store_reachable", "1 while the store answers.", registry=self._registry
        )
        Gauge(
            "rate_limit_store_embedded", "1 if the store is the embedded one.", registry=self._registry
        ).set(int(embedded))
        Gauge("rate_limit_build_info", "The running version.", ["version"], registry=self._registry).labels(
            __version__
        ).set(1)

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        result = "allowed" if decision.allowed else "rejected"
        self._requests.labels(
            result, decision.client_id or "", decision.rule_id or "", decision.reason.value
        ).inc()
        if decision.reason is Reason.STORAGE_UNAVAILABLE:
            self._store_errors.inc()
        for state in decision.states:
            if state.check.shadow and not state.usage.fits:
                self._shadow_refusals.labels(state.check.client_id, state.check.rule.id).inc()

    def store_answered(self, seconds: float) -> None:
        self._latency.observe(seconds)

    def unreadable_address(self) -> None:
        self._unreadable.inc()

    def store_reachable(self, reachable: bool) -> None:
        self._store_up.set(int(reachable))

    def page(self) -> tuple[str, bytes]:
        """Content type and body of `/metrics`."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)
