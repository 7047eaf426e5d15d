"""Who waits for one answer, told by a call: a future's turn of the event loop for each would cost more."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("sidecar.store")

#: Takes an answer, or the exception that there is instead of it.
Then = Callable[[Any], None]


def _nobody(outcome: Any) -> None:
    """Nobody waits any more."""


class Pending:
    """Calls `then` with the first answer that it is told, or with the exception; what comes later is lost."""

    __slots__ = ("_then", "done", "due")

    def __init__(self, then: Then) -> None:
        self._then = then
        self.done = False
        #: The tick of its deadline.
        self.due = 0

    def give_up(self) -> None:
        """Nobody waits any more."""
        self.done, self._then = True, _nobody

    def tell(self, outcome: Any) -> None:
        if self.done:
            return
        # Let go of: a clock of deadlines looks at the answered ones only later, and they hold a request.
        then, self._then = self._then, _nobody
        self.done = True
        try:
            then(outcome)
        except Exception:  # others wait for what came with it
            _log.exception("an answer of the store could not be taken")


def into(future: asyncio.Future[Any]) -> Then:
    """Tells a future; one that was given up meanwhile is left alone."""

    def then(outcome: Any) -> None:
        if future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    return then
