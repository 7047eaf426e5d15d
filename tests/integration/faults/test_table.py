"""Each fault under load: everybody is answered by the rules' own word, nothing counts twice, and it ends."""

import asyncio
from pathlib import Path

import pytest

from tests.faults.play import Played, play
from tests.faults.rows import FAULTS

SECONDS, PER_SECOND = 1.2, 150
#: Of a busy machine, beside what the contract says.
SLACK_SECONDS = 3.0
BY_STORE = {"allowed", "quota_exceeded"}
WITHOUT_STORE = {"storage_unavailable (200)", "storage_unavailable (503)", "local_quota_exceeded"}


@pytest.fixture(scope="module", params=FAULTS, ids=lambda fault: fault.name)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One after the other, each with a store and a sidecar of its own."""
    directory: Path = tmp_path_factory.mktemp("fault")
    return asyncio.run(play(request.param, directory, seconds=SECONDS, per_second=PER_SECOND))


def test_every_request_is_answered_as_its_rule_says(played: Played) -> None:
    """Those that allow with 200, that deny with 503, that are local with 429 once their share is used up."""
    reasons = set(played.reasons)
    if not played.fault.away:
        assert reasons == BY_STORE
    elif played.fault.brief:
        assert BY_STORE <= reasons <= BY_STORE | WITHOUT_STORE
    else:
        assert reasons == BY_STORE | WITHOUT_STORE


def test_nobody_waits_much_longer_than_a_decision_may(played: Played) -> None:
    slowest = max(answer.came - answer.sent for answer in played.answers)
    assert slowest < played.fault.timeout_ms / 1000 + SLACK_SECONDS


def test_nothing_is_counted_twice(played: Played) -> None:
    """Neither what was answered nor what was not; all counters of a request agree."""
    assert played.twice == []
    assert {word: len(played.counted[word]) for word in played.together} == played.together


def test_what_is_counted_was_allowed_or_its_answer_had_not_come(played: Played) -> None:
    assert played.stood <= played.without_store


def test_what_the_store_has_allowed_stays_counted(played: Played) -> None:
    """But for what the embedded store had not written yet when it was killed."""
    assert played.lost == set()


def test_the_store_decides_again_soon_after_its_return(played: Played) -> None:
    assert played.recovered_seconds < 2 + SLACK_SECONDS


def test_ready_metrics_and_log_say_what_is_so(played: Played) -> None:
    """One line for each change, in turn; a store that is there is called so to the end."""
    times = len(played.turns) // 2
    assert played.turns == ["opened", "closed"] * times
    assert played.looks == ["came", *["gone", "came"] * (len(played.looks) // 2)]
    if not played.fault.away:
        assert (played.said_degraded, played.turns, played.looks) == (False, [], ["came"])
        assert played.metrics["rate_limit_store_errors_total"] == 0
    elif not played.fault.brief:
        assert played.said_degraded
        assert times >= 1
        assert played.metrics["rate_limit_store_errors_total"] > 0
        assert played.metrics["rate_limit_store_breakers_open"] == 1
