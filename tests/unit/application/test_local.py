"""Limits without the store: the share of each process, and what is kept from one outage to the next."""

import time

import pytest

from sidecar.application import local as local_module
from sidecar.application.local import LocalCounters, Sharing, steady_clock
from sidecar.domain.algorithms import SECOND_US, Algorithm
from sidecar.domain.counters import Room
from sidecar.domain.decision import Check
from sidecar.domain.rule import Rule
from tests.decisions import NOW_US, check, rule


class Clock:
    def __init__(self) -> None:
        self.now = NOW_US

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def local(clock: Clock) -> LocalCounters:
    return LocalCounters(clock)


def admitted(local: LocalCounters, checks: list[Check], times: int) -> int:
    return sum(local.hit(checks, charge=True)[1].admitted for _ in range(times))


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize(
    ("limit", "processes", "share"),
    [(10, 1, 10), (10, 2, 5), (10, 3, 3), (10, 10, 1), (10, 11, 1), (1, 1, 1), (1, 5, 1), (11, 2, 5)],
)
def test_each_process_admits_its_share(
    local: LocalCounters, algorithm: Algorithm, limit: int, processes: int, share: int
) -> None:
    """The limit by the number of processes, rounded down, and at least one."""
    local.sharing.processes = processes
    assert admitted(local, [check(rule(limit=limit, algorithm=algorithm))], 2 * limit + 2) == share


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_together_they_admit_no_more_than_the_limit(processes: int) -> None:
    total = 0
    for _ in range(processes):
        one = LocalCounters(lambda: NOW_US)
        one.sharing.processes = processes
        total += admitted(one, [check(rule(limit=20))], 30)
    assert 20 - processes < total <= 20


def test_a_bucket_is_shared_with_its_refill(local: LocalCounters, clock: Clock) -> None:
    """A burst of 12 and 6 per minute, for three: 4 at once, then one each 30 seconds."""
    local.sharing.processes = 3
    bucket = [check(rule(algorithm=Algorithm.TOKEN_BUCKET, limit=6, burst=12))]
    assert admitted(local, bucket, 10) == 4
    clock.now += 29 * SECOND_US
    assert admitted(local, bucket, 10) == 0
    clock.now += SECOND_US
    assert admitted(local, bucket, 10) == 1


def test_the_numbers_are_those_of_the_share(local: LocalCounters) -> None:
    local.sharing.processes = 4
    (shared,), counted = local.hit([check(rule(limit=10))], charge=True)
    assert (shared.limit, shared.capacity, counted.usages[0].used) == (2, 2, 1)
    assert counted.now_us == NOW_US


def test_processes_that_come_make_shares_smaller_and_keep_what_was_charged(local: LocalCounters) -> None:
    """Those that go make them larger again."""
    one = [check(rule(limit=10))]
    assert admitted(local, one, 6) == 6
    local.sharing.processes = 2
    assert admitted(local, one, 6) == 0
    local.sharing.processes = 1
    assert admitted(local, one, 6) == 4


def test_a_look_charges_nothing(local: LocalCounters) -> None:
    one = [check(rule(limit=1))]
    assert [local.hit(one, charge=False)[1].admitted for _ in range(3)] == [True] * 3
    assert admitted(local, one, 2) == 1


def test_each_is_counted_apart(local: LocalCounters) -> None:
    """By client, rule, generation, identifier and resets."""
    of = rule(limit=1)
    others = [
        check(of),
        check(of, identifier="=y"),
        check(of, client_id="d"),
        check(of, resets=1),
        check(rule("r2", limit=1)),
        check(rule(limit=1, window_seconds=61)),
    ]
    assert [admitted(local, [one], 2) for one in others] == [1] * len(others)


def test_what_was_charged_counts_in_the_next_outage_as_well(local: LocalCounters, clock: Clock) -> None:
    """A store that comes and goes gives nobody another share each time, until the window is over."""
    one = [check(rule(limit=5, window_seconds=60))]
    outages = []
    for _ in range(4):
        outages.append(admitted(local, one, 10))
        clock.now += 16 * SECOND_US
    assert outages == [5, 0, 0, 0]
    assert admitted(local, one, 10) == 5


def test_a_million_identifiers_take_no_more_room_than_there_is(
    local: LocalCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ones are kept."""
    monkeypatch.setattr(local_module, "ROOM", Room(counters=50, numbers=10_000))
    small = LocalCounters(lambda: NOW_US)
    of = rule(limit=1)
    for number in range(1000):
        assert admitted(small, [check(of, identifier=f"={number}")], 1) == 1
    assert small._counters.taken.counters == 50
    assert [admitted(small, [check(of, identifier=f"={n}")], 1) for n in (999, 950, 0)] == [0, 0, 1]


def test_a_clock_that_is_corrected_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither are windows over at once, nor do they last for another hour."""
    clock = steady_clock()
    before = clock()
    hour = 3600 * 10**9
    right = time.time_ns
    for wrong in (hour, -hour):
        monkeypatch.setattr(time, "time_ns", lambda wrong=wrong: right() + wrong)
        assert 0 <= clock() - before < 60 * SECOND_US
    assert abs(before - right() // 1000) < 60 * SECOND_US


def test_a_cost_above_the_share_never_fits(local: LocalCounters) -> None:
    """No waiting helps, and that is what is said."""
    local.sharing.processes = 4
    expensive: Rule = rule(limit=10, cost=3)
    _, counted = local.hit([check(expensive)], charge=True)
    assert (counted.admitted, counted.usages[0].retry_us) == (False, None)


@pytest.fixture
def sharing(clock: Clock) -> Sharing:
    """Of five processes, by a clock of seconds."""
    clock.now = 0
    told = Sharing(clock)
    told.told(5)
    return told


def test_more_processes_are_believed_at_once(sharing: Sharing) -> None:
    """Too many only make shares smaller."""
    sharing.told(6)
    assert sharing.processes == 6


def test_fewer_processes_are_believed_after_a_while(sharing: Sharing, clock: Clock) -> None:
    """The most that were named meanwhile, since some are heard of later than others."""
    for clock.now, number in enumerate((1, 3, 2)):
        sharing.told(number)
        assert sharing.processes == 5
    clock.now = 3
    sharing.told(2)
    assert sharing.processes == 3


def test_a_store_that_comes_and_goes_without_its_data_gives_nobody_a_larger_share(
    sharing: Sharing, clock: Clock
) -> None:
    """Each time it knows only who has asked it since then."""
    for clock.now in range(10):
        sharing.told(1)
        sharing.store_away()
    assert sharing.processes == 5


def test_as_many_as_before_begins_the_while_anew(sharing: Sharing, clock: Clock) -> None:
    """Only an uninterrupted while counts."""
    for clock.now, number in enumerate((4, 4, 5, 4, 4)):
        sharing.told(number)
    assert sharing.processes == 5
