"""What can be loaded, and is yet hardly what was meant."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sidecar.domain.address import canonical_network
from sidecar.domain.identity import IdentifierReader, IdentityOptions, identifier_types
from sidecar.domain.route import RoutePattern
from sidecar.domain.rule import Client, Enforcement, Mode, Rule
from sidecar.infrastructure.config.clients import Placed
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.port_advice import of_ports
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.explanation import did_you_mean

_ENCODED_SLASH = re.compile(r"%2F|%5C|\\")


def of_settings(settings: Settings, main: Document, clients: Sequence[Client]) -> Iterator[Problem]:
    """Warnings about settings without errors; of the clients they depend only where `proxy` is not served."""
    if settings.enforcement is Enforcement.OFF:
        yield main.problem(("enforcement",), "is off: no request is limited")
    yield from of_ports(settings, main, clients)


def undefined_default(settings: Settings, main: Document, ids: Iterable[str]) -> Problem:
    """Of a default client that no file defines. No error: the API may have made it, or be about to.

    `ids` may be repeated.
    """
    name, where = settings.default_client or "", "default_client"
    named, alike = repr(name), did_you_mean(name, ids)
    if origin := main.origins.get((where,)):  # what comes from outside is not repeated
        named, alike = origin.reference, ""
    message = f"no file defines {named}: until the API makes it, the requests that it is for are not limited"
    return Problem(main.path, main.line((where,)), where, message + alike)


def of_client(one: Placed, client: Client, settings: Settings) -> Iterator[Problem]:
    if client.enforcement is Enforcement.OFF:
        yield one.problem("enforcement", message="is off: no request of this client is limited")
    yield from _everyone_exempt(one, client)
    rules = [_Known.of(rule, client, settings) for rule in client.rules]
    if not any(rule.pattern.catches_all and rule.methods is None for rule in rules):
        message = "no rule is for all the rest (route '/*', method '*'): what matches no rule is not limited"
        yield one.problem(message=message)
    finals = [rule for rule in rules if rule.rule.final]
    overruling = [rule for rule in rules if rule.rule.mode in (Mode.EXEMPT, Mode.BLOCK)]
    for index, rule in enumerate(rules):
        if over := next((other for other in overruling if other.silences(rule, finals)), None):
            message = f"never applies: the {over.rule.mode} rule {over.rule.id!r} covers it"
            yield one.problem("rules", index, message=message)
        if settings.paths.decode_slashes and _ENCODED_SLASH.search(rule.pattern.text):
            message = "never matches: decode_slashes turns %2F, %5C and \\ into '/' before matching"
            yield one.problem("rules", index, "route", message=message)
        for message in _never_read(rule.rule, settings):
            yield one.problem("rules", index, "identifier_type", message=message)
        yield from _overrides_of_one_caller(one, index, rule, settings.client_ip.ipv6_prefix)


def _everyone_exempt(one: Placed, client: Client) -> Iterator[Problem]:
    for index, written in enumerate(client.exempt_ips):
        network = canonical_network(written)
        if network.prefixlen == 0:
            message = f"holds every IPv{network.version} address: nothing that comes from one is limited"
            yield one.problem("exempt_ips", index, message=message)


def _never_read(rule: Rule, settings: Settings) -> Iterator[str]:
    """Where all sources of an identifier are switched off, proxied requests have none."""
    kinds, identity, listen = identifier_types(rule.identifier_type), settings.identity, settings.listen
    if listen.secret and f"header:{listen.secret_header}" in {kind.lower() for kind in kinds}:
        yield f"a proxied request never has the header {listen.secret_header}: it has the proxy's secret"
    if "session_id" in kinds and identity.session_header is None and identity.session_cookie is None:
        yield (
            "a proxied request never has a session_id: identity.session_header and identity.session_cookie"
            " are null"
        )
    if "user_id" in kinds and identity.user_header is None:
        yield "a proxied request never has a user_id: identity.user_header is null"


def _overrides_of_one_caller(one: Placed, index: int, known: "_Known", prefix: int) -> Iterator[Problem]:
    """An address has several spellings, and IPv6 callers are counted by network."""
    options = IdentityOptions(ipv6_prefix=prefix)
    reader = IdentifierReader(known.rule.identifier_type, dict(known.pattern.parameters), options)
    named: dict[tuple[str, ...], str] = {}
    for written in known.rule.overrides:
        values = reader.parse(written)
        if (other := named.setdefault(values, written)) != written:
            kinds = identifier_types(known.rule.identifier_type)
            ipv6 = any(k == "ip" and ":" in value for k, value in zip(kinds, values, strict=False))
            same = f"a network of /{prefix}" if ipv6 else "the same address"
            message = f"is counted together with {other!r}, {same}; the last one holds"
            yield one.problem("rules", index, "overrides", written, message=message)


@dataclass(frozen=True, slots=True)
class _Known:
    rule: Rule
    pattern: RoutePattern
    methods: frozenset[str] | None
    #: Only watches: it blocks nothing, and what is final in it leaves out other shadow rules alone.
    shadow: bool

    @classmethod
    def of(cls, rule: Rule, client: Client, settings: Settings) -> "_Known":
        watched = Enforcement.SHADOW in (client.enforcement, settings.enforcement)
        return cls(rule, RoutePattern.parse(rule.route), rule.methods, watched or rule.mode is Mode.SHADOW)

    @property
    def specificity(self) -> tuple[tuple[int, int], bool]:
        return self.pattern.specificity, self.methods is not None

    def silences(self, other: "_Known", finals: Sequence["_Known"]) -> bool:
        """Whether every request that `other` matches is exempt or blocked by this rule first.

        A final rule more specific than this one may leave it out and `other` not: then nothing is said.
        """
        return (
            self._overrules(other)
            and self._covers(other)
            and not any(final.leaves_out(self) and final.specificity <= other.specificity for final in finals)
        )

    def leaves_out(self, other: "_Known") -> bool:
        return self.specificity > other.specificity and (other.shadow or not self.shadow)

    def _overrules(self, other: "_Known") -> bool:
        if self.rule.mode is Mode.EXEMPT:
            return other.rule.mode is not Mode.EXEMPT
        return self.rule.mode is Mode.BLOCK and not self.shadow and other.rule.counts

    def _covers(self, other: "_Known") -> bool:
        if self.methods is not None and (other.methods is None or not other.methods <= self.methods):
            return False
        return self.pattern.covers(other.pattern)
