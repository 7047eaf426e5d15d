"""What the sidecar says about itself."""

import pytest

from sidecar.application.readiness import Readiness


@pytest.mark.parametrize(
    ("readiness", "status", "word"),
    [
        (Readiness(), 503, "unavailable"),
        (Readiness(store_reachable=True), 503, "unavailable"),
        (Readiness(serving=True), 200, "degraded"),
        (Readiness(serving=True, store_reachable=False), 200, "degraded"),
        (Readiness(serving=True, store_reachable=True), 200, "ready"),
        (Readiness(serving=True, store_reachable=True, open_breakers=1), 200, "degraded"),
        (Readiness(store_reachable=True, open_breakers=1), 503, "unavailable"),
        (
            Readiness(serving=True, store_reachable=True, evicts_by="allkeys-lru"),
            200,
            "ready, but the store may evict counters: its maxmemory-policy is allkeys-lru",
        ),
        (Readiness(serving=True, evicts_by="allkeys-lru"), 200, "degraded"),
    ],
)
def test_only_starting_and_draining_keep_requests_away(readiness: Readiness, status: int, word: str) -> None:
    """The store's absence is said, and changes no status."""
    assert (readiness.status, readiness.word) == (status, word)
