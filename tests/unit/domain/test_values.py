"""Values that are made for every request: dataclasses that only type checkers hold to be frozen."""

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from sidecar.domain.values import per_request


@per_request()
class Point:
    x: int
    y: int = 0
    names: tuple[str, ...] = field(default=())


@per_request(kw_only=True)
class Named:
    name: str


def test_they_are_equal_and_hashed_by_their_fields() -> None:
    """So they serve as keys and are compared in tests."""
    assert Point(1, 2) == Point(1, 2) != Point(2, 1)
    assert len({Point(1), Point(1), Point(2)}) == 2
    same: object = (1, 0, ())
    assert Point(1) != same


def test_they_are_dataclasses_with_slots() -> None:
    assert [one.name for one in fields(Point)] == ["x", "y", "names"]
    assert replace(Point(1), y=5) == Point(1, 5)
    assert not hasattr(Point(1), "__dict__")
    with pytest.raises(AttributeError):
        Point(1).z = 3  # type: ignore[attr-defined]


def test_keywords_only_is_possible() -> None:
    assert Named(name="n").name == "n"
    with pytest.raises(TypeError):
        Named("n")  # type: ignore[call-arg]


def test_nothing_keeps_them_from_being_changed_but_the_type_checker() -> None:
    """Which is the difference that makes them cheap."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        x: int

    with pytest.raises(FrozenInstanceError):
        Frozen(1).x = 2  # type: ignore[misc]
    point = Point(1)
    point.x = 2  # type: ignore[misc]
    assert point == Point(2)
