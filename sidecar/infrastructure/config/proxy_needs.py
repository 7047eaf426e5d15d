"""What a configuration needs of the proxy in front: headers to hand over, and headers to keep callers off.

The recipes write it, the checks look for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sidecar.domain.identity import identifier_types
from sidecar.domain.rule import Client, Mode, OnMissing, OnUnavailable, Rule
from sidecar.infrastructure.config.schema import Settings

FORWARDED = "x-forwarded-for"
#: The same id in the sidecar's log as in the proxy's.
REQUEST_ID = "x-request-id"


@dataclass(frozen=True, slots=True)
class ProxyNeeds:
    """Header names are lower case; each appears once, in a fixed order."""

    settings: Settings
    clients: Sequence[Client]

    @property
    def passed(self) -> tuple[str, ...]:
        """The client's own headers that the sidecar reads: all that can be of use."""
        identity = self.settings.identity
        session = identity.session_header, "cookie" if identity.session_cookie else None
        names = [REQUEST_ID, *filter(None, session), *self.needed]
        return tuple(name for name in dict.fromkeys(names) if name not in self.kept_off)

    @property
    def needed(self) -> tuple[str, ...]:
        """Those without which a rule counts another identifier than it says; a session has two of them."""
        return tuple(dict.fromkeys([*self._of_rules(), *self._of_preflights()]))

    @property
    def sessions(self) -> tuple[str, ...]:
        """Where a session is found, if a rule counts by it: any of these will do."""
        identity = self.settings.identity
        found = identity.session_header, "cookie" if identity.session_cookie else None
        return tuple(filter(None, found)) if self._counts("session_id") else ()

    @property
    def identities(self) -> tuple[str, ...]:
        """Headers that say who somebody is, all that are read: callers must not write them."""
        settings = self.settings
        names = settings.identity.user_header, settings.client_header, settings.identity.jwt_payload_header
        return tuple(dict.fromkeys(filter(None, names)))

    @property
    def used_identities(self) -> tuple[str, ...]:
        """Those of them that now decide who is counted."""
        identity, used = self.settings.identity, [self.settings.client_header]
        if self._counts("user_id"):
            used.append(identity.user_header)
        if self._counts("jwt_claim"):
            used.append(identity.jwt_payload_header)
        return tuple(name for name in self.identities if name in used or name in self.needed)

    @property
    def kept_off(self) -> tuple[str, ...]:
        """What no caller may write, the header of the address and that of the secret too."""
        address = self.settings.client_ip.header
        return tuple(filter(None, (*self.identities, address, self.settings.listen.secret_header)))

    @property
    def address(self) -> bool:
        """Whether anything depends on the caller's address."""
        return any(client.exempt_ips for client in self.clients) or any(map(self._by_address, self.rules))

    @property
    def denies(self) -> str | None:
        """Which part of the configuration refuses requests that cannot be counted, if any does."""
        if self.settings.store.on_unavailable is OnUnavailable.DENY:
            return "store.on_unavailable"
        for client in self.clients:
            for rule in client.rules:
                if rule.mode is Mode.ENFORCE and rule.on_unavailable is OnUnavailable.DENY:
                    return f"on_unavailable of the rule {rule.id!r} of {client.id!r}"
        return None

    @property
    def rules(self) -> Iterator[Rule]:
        """Those that count."""
        return (rule for client in self.clients for rule in client.rules if rule.counts)

    def _by_address(self, rule: Rule) -> bool:
        kinds = identifier_types(rule.identifier_type)
        if any(kind in ("ip", "ip_user_agent") for kind in kinds):
            return True
        fallback = rule.on_missing or self.settings.identity.on_missing
        can_miss = any(kind != "none" and not kind.startswith("path:") for kind in kinds)
        return can_miss and fallback is OnMissing.IP

    def _kinds(self) -> Iterator[str]:
        return (kind for rule in self.rules for kind in identifier_types(rule.identifier_type))

    def _counts(self, kind: str) -> bool:
        return any(found.partition(":")[0] == kind for found in self._kinds())

    def _of_rules(self) -> Iterator[str]:
        for kind in self._kinds():
            prefix, _, name = kind.partition(":")
            if prefix == "header":
                yield name.lower()
            elif prefix == "cookie":
                yield "cookie"
            elif kind == "ip_user_agent":
                yield "user-agent"

    def _of_preflights(self) -> Iterator[str]:
        if not self.settings.count_preflights:
            yield from ("origin", "access-control-request-method")
