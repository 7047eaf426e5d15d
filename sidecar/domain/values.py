"""Values that are made for every request.

They are as immutable as frozen dataclasses to whoever checks types, but without the check at run time, which
makes up to a fifth of what a decision costs: a frozen dataclass sets each field through `object`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def per_request(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """A class decorator: a dataclass with slots, equality and a hash."""

    def made(cls: type[T]) -> type[T]:
        return dataclass(slots=True, kw_only=kw_only, unsafe_hash=True)(cls)

    return made
