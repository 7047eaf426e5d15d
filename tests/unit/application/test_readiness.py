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
    ],
)
def test_only_starting_and_draining_keep_requests_away(readiness: Readiness, status: int, word: str) -> None:
    """The store's absence is said, and changes no status."""
    assert (readiness.status, readiness.word) == (status, word)
