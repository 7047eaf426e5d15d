"""Asking a store that does not answer costs each request its patience; after a few failures nobody asks.

The breaker knows failures and successes only. Who opens it has to find out in the background when the store
is back: while it is open, requests say nothing about that.
"""

from collections.abc import Callable

#: So many failures in a row. Fewer would be one slow moment of the store; all of them may come at once.
FAILURES = 5


class Breaker:
    """Closed until `FAILURES` follow each other, then open until one success.

    `on_change` is told each time whether it is open now.
    """

    __slots__ = ("_failures", "_on_change", "open")

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self.open = False
        self._failures = 0
        self._on_change = on_change

    def failed(self) -> None:
        self._failures += 1
        if not self.open and self._failures >= FAILURES:
            self.open = True
            self._on_change(True)

    def succeeded(self) -> None:
        self._failures = 0
        if self.open:
            self.open = False
            self._on_change(False)
