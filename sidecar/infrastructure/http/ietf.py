"""`RateLimit-Policy` and `RateLimit`, draft-ietf-httpapi-ratelimit-headers-11: lists of structured fields.

```
RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
RateLimit: "burst";r=50;t=30, "daily";r=990;t=7
```
"""

from collections.abc import Iterator

import http_sf
from http_sf.types import BareItemType, ItemType

from sidecar.domain.decision import Decision, RuleState
from sidecar.infrastructure.http.rounding import seconds

#: All headers of an answer stay under 4 KiB, and a request may meet 64 rules with ids of 64 characters.
MAX_LENGTH = 1400
#: What a structured field's integer holds (RFC 9651 3.3.1).
_MAX_INTEGER = 10**15 - 1


def ietf_headers(decision: Decision) -> dict[str, str]:
    """Those of all enforcing rules; the shown one first, so that it is there when not all fit."""
    states = [state for state in decision.states if not state.check.shadow]
    if not states:
        return {}
    states.sort(key=lambda state: state is not decision.shown)
    return {
        "RateLimit-Policy": _list(map(_policy, states)),
        "RateLimit": _list(map(_limit, states)),
    }


def _policy(state: RuleState) -> ItemType:
    check = state.check
    return check.rule.id, {"q": _bounded(check.capacity), "w": check.rule.window_seconds or 1}


def _limit(state: RuleState) -> ItemType:
    """`t` is left out where nothing is used: no more will ever be there."""
    numbers: dict[str, BareItemType] = {"r": _bounded(state.remaining)}
    if state.usage.reset_us:
        numbers["t"] = seconds(state.usage.reset_us)
    return state.check.rule.id, numbers


def _bounded(number: int) -> int:
    return min(number, _MAX_INTEGER)


def _list(items: Iterator[ItemType]) -> str:
    text = ""
    for item in items:
        longer = ", ".join(filter(None, (text, http_sf.ser([item]))))
        if len(longer) > MAX_LENGTH:
            break
        text = longer
    return text
