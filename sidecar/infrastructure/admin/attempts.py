"""How often one address may fail to say who it is: counted by the limiter's own model, in this process.

In this process, because it has to work while the store is away, and bounded: whoever has many addresses makes
the oldest be forgotten, and does not make the sidecar grow.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from sidecar.domain.address import address_identity, canonical_address
from sidecar.domain.algorithms import SECOND_US, SlidingWindow, State, Terms

WINDOW_SECONDS = 60
#: With ten failures each, these take about 4 MB.
MOST_ADDRESSES = 4096
#: An IPv6 caller has its whole network to send from.
_IPV6_PREFIX = 64


class FailureLimit:
    """Failures by address in a sliding minute; `per_minute` may be changed at any time."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most_addresses: int = MOST_ADDRESSES
    ) -> None:
        self.per_minute = 10
        self._clock = clock
        self._most_addresses = most_addresses
        self._states: OrderedDict[str, State] = OrderedDict()

    def charge(self, address: str) -> int | None:
        """Count a failure; beyond the limit it is not counted, and the seconds to wait are returned."""
        who = address_identity(canonical_address(address), _IPV6_PREFIX)
        now = int(self._clock() * SECOND_US)
        window = SlidingWindow.at(self._states.get(who), now, self._terms())
        if window.used >= self.per_minute:
            return max(1, ceil((window.when_at_most(self.per_minute - 1) - now) / SECOND_US))
        self._states[who] = window.charged(1)
        self._states.move_to_end(who)
        if len(self._states) > self._most_addresses:
            self._states.popitem(last=False)
        return None

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._states)

    def _terms(self) -> Terms:
        return Terms(self.per_minute, self.per_minute, WINDOW_SECONDS * SECOND_US)
