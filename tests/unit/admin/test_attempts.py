"""How often an address may fail, without a port."""

from dataclasses import dataclass

import pytest

from sidecar.infrastructure.admin.attempts import MOST_ADDRESSES, FailureLimit


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_address_has_its_own_minute(clock: Clock) -> None:
    """An IPv6 network is one address, a mapped IPv4 address that one."""
    limit = FailureLimit(clock)
    limit.per_minute = 2
    assert [limit.charge("192.0.2.1") for _ in range(3)] == [None, None, 60]
    assert limit.charge("::ffff:192.0.2.1") == 60
    assert limit.charge("192.0.2.2") is None
    assert [limit.charge(f"2001:db8::{index}") for index in range(1, 4)] == [None, None, 60]
    assert limit.charge("2001:db8:0:1::1") is None
    clock.now += 59.5
    assert limit.charge("192.0.2.1") == 1
    clock.now += 0.5
    assert limit.charge("192.0.2.1") is None


def test_callers_without_an_address_count_together(clock: Clock) -> None:
    """Those of a Unix socket."""
    limit = FailureLimit(clock)
    limit.per_minute = 1
    assert [limit.charge(""), limit.charge("")] == [None, 60]


def test_a_flood_of_addresses_makes_the_oldest_be_forgotten(clock: Clock) -> None:
    """Memory stays flat; who failed last is remembered."""
    limit = FailureLimit(clock)
    limit.per_minute = 1
    for number in range(3 * MOST_ADDRESSES):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        assert limit.charge(address) is None
    assert len(limit) == MOST_ADDRESSES
    assert limit.charge(address) == 60
    assert limit.charge("10.0.0.0") is None


def test_another_limit_holds_at_once(clock: Clock) -> None:
    limit = FailureLimit(clock)
    assert [limit.charge("192.0.2.1") for _ in range(11)] == [None] * 10 + [60]
    limit.per_minute = 11
    assert [limit.charge("192.0.2.1") for _ in range(2)] == [None, 60]
    limit.per_minute = 3
    assert limit.charge("192.0.2.1") == 60
