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

    @property
    def status(self) -> int:
        return 200 if self.serving else 503

    @property
    def word(self) -> str:
        if not self.serving:
            return "unavailable"
        return "ready" if self.store_reachable else "degraded"
