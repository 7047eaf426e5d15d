"""Restarts under load: no request is lost, no unit of a limit too many or too few is given out."""

from pathlib import Path

from tests.faults.restarts import draining, rolling

LIMIT = 800


async def test_three_replicas_restarted_in_turn_admit_exactly_the_limit(tmp_path: Path) -> None:
    """Every request is answered, by whoever is there."""
    answered = await rolling(tmp_path, limit=LIMIT, per_second=250)
    assert answered.failures == []
    assert answered.statuses == {200: LIMIT, 429: answered.number - LIMIT}


async def test_clients_of_an_envoy_see_no_error_while_its_sidecar_restarts(tmp_path: Path) -> None:
    """While nobody is there Envoy lets requests pass; all others are decided by the rule."""
    answered, _ = await draining(tmp_path, requests=500, restarts=3, per_second=150, pause_seconds=0.3)
    assert answered.failures == []
    assert answered.statuses == {200: answered.number}
    assert answered.limited > 100
