"""Three replicas that limit by themselves: together no more than the limit, however often the store goes."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.faults.scene import YEAR
from tests.faults.shares import REPLICAS, config, outage, three
from tests.parts import StoreServer
from tests.rate_calls import check
from tests.sidecar_process import SidecarProcess

#: Its third, rounded down, is 10.
LIMIT = 31
FIXED = {"algorithm": "fixed_window", "limit": LIMIT, "window_seconds": YEAR}


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[StoreServer, list[SidecarProcess]]]:
    with three(tmp_path_factory.mktemp("shares"), config(**FIXED)) as started:
        yield started


def test_in_an_outage_all_together_admit_no_more_than_the_limit(
    stage: tuple[StoreServer, list[SidecarProcess]],
) -> None:
    """Each its share; and in the next outage of the same window nothing more."""
    first = asyncio.run(outage(*stage, seconds=1.0, per_second=150))
    assert len(first.admitted) == LIMIT // REPLICAS * REPLICAS
    assert len(first.answers) > 2 * LIMIT
    second = asyncio.run(outage(*stage, seconds=0.3, per_second=150))
    assert (len(second.admitted), len(second.answers) > 10) == (0, True)


def test_in_an_outage_users_are_counted_apart(stage: tuple[StoreServer, list[SidecarProcess]]) -> None:
    """By `/rate/check`, which has the default's word: each user and endpoint has a share of its own."""
    store, (sidecar, *_) = stage
    store.stop()
    try:
        for user, endpoint in (("1", "/a"), ("2", "/a"), ("1", "/b")):
            answers = [check(sidecar, user, endpoint) for _ in range(4)]
            assert [answer.status for answer in answers] == [200, 200, 429, 429]
            assert {answer.headers["x-ratelimit-degraded"] for answer in answers} == {"storage_unavailable"}
    finally:
        store.start()
