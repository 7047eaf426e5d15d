"""What the configuration says for all clients together."""

from dataclasses import dataclass, field

from sidecar.domain.identity import IdentityOptions
from sidecar.domain.rule import Enforcement, OnMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What holds for all clients."""

    default_client: str | None = None
    enforcement: Enforcement = Enforcement.ON
    on_missing: OnMissing = OnMissing.IP
    decode_slashes: bool = False
    count_preflights: bool = True
    identity: IdentityOptions = field(default_factory=IdentityOptions)
