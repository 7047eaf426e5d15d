"""The breaker: when nobody asks any more, when everybody does again, and who hears of it."""

import pytest

from sidecar.application.breaker import FAILURES, Breaker


@pytest.fixture
def told() -> list[bool]:
    return []


@pytest.fixture
def breaker(told: list[bool]) -> Breaker:
    return Breaker(told.append)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def test_a_few_failures_are_borne(breaker: Breaker, told: list[bool]) -> None:
    fail(breaker, FAILURES - 1)
    assert (breaker.open, told) == (False, [])


def test_as_many_as_that_in_a_row_open_it(breaker: Breaker, told: list[bool]) -> None:
    fail(breaker, FAILURES)
    assert (breaker.open, told) == (True, [True])


def test_one_success_between_them_begins_the_row_anew(breaker: Breaker, told: list[bool]) -> None:
    for _ in range(3):
        fail(breaker, FAILURES - 1)
        breaker.succeeded()
    assert (breaker.open, told) == (False, [])


def test_one_success_closes_it(breaker: Breaker, told: list[bool]) -> None:
    """The row begins anew as well."""
    fail(breaker, FAILURES)
    breaker.succeeded()
    fail(breaker, FAILURES - 1)
    assert (breaker.open, told) == (False, [True, False])


def test_only_changes_are_told(breaker: Breaker, told: list[bool]) -> None:
    """However many failures and successes there are."""
    breaker.succeeded()
    fail(breaker, 10 * FAILURES)
    breaker.succeeded()
    breaker.succeeded()
    fail(breaker, FAILURES)
    assert told == [True, False, True]
