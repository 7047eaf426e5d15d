"""What the sidecar says about itself to whoever restarts it or sends it traffic."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Not ready while starting or draining. A store that is away only degrades: taking every replica out at
    once would turn an outage of the store into one of the site.
    """

    serving: bool = False
    #: `None` until it is known.
    store_reachable: bool | None = None
    #: Servers of the store that no request asks at the moment.
    open_breakers: int = 0
    #: Where the store may forget counters when its memory is full: its policy, else empty.
    evicts_by: str = ""

    @property
    def status(self) -> int:
        return 200 if self.serving else 503

    @property
    def word(self) -> str:
        if not self.serving:
            return "unavailable"
        if not self.store_reachable or self.open_breakers:
            return "degraded"
        if self.evicts_by:
            return f"ready, but the store may evict counters: its maxmemory-policy is {self.evicts_by}"
        return "ready"
