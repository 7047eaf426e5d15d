"""What can be listened with, read and answered, and is yet hardly what was meant."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from sidecar.domain.address import canonical_network
from sidecar.domain.identity import identifier_types
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.listen import LOOPBACK, PRIVATE, AddressOf, Endpoint
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.config.proxy_needs import FORWARDED, ProxyNeeds
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.explanation import Location

Told = Iterator[tuple[Location, str]]


def of_ports(settings: Settings, main: Document, clients: Sequence[Client]) -> Iterator[Problem]:
    """Warnings about who may ask, where addresses are found, and what callers are told."""
    told: list[tuple[Location, str]] = [
        *_open_to_all(settings),
        *_never_asked(settings),
        *_socket(settings),
        *_addresses(settings),
        *_dropped_names(settings),
        *_without_numbers(settings),
        *_gateway_statuses(settings),
        *_apis(settings, clients),
    ]
    for location, message in told:
        yield main.problem(location, message)


def _open_to_all(settings: Settings) -> Told:
    listen = settings.listen
    if listen.secrets or _is_loopback(listen.authz_endpoint):
        return
    for index, written in enumerate(listen.trusted_peers):
        if written not in (LOOPBACK, PRIVATE) and canonical_network(written).prefixlen == 0:
            message = (
                f"whoever reaches {listen.authz} may use up any caller's limit: "
                "name the proxy's network, or set listen.secret"
            )
            yield ("listen", "trusted_peers", index), message


def _is_loopback(endpoint: Endpoint) -> bool:
    if endpoint.path is not None or endpoint.host == "localhost":
        return True
    try:
        return ip_address(endpoint.host).is_loopback
    except ValueError:
        return False


def _never_asked(settings: Settings) -> Told:
    listen = settings.listen
    if not listen.trusted_peers and listen.authz_endpoint.path is None:
        yield ("listen", "trusted_peers"), "is empty: nobody may ask, every check is answered 403"


def _socket(settings: Settings) -> Told:
    listen = settings.listen
    if listen.authz_endpoint.path is not None and "trusted_peers" in listen.model_fields_set:
        message = (
            "is not read where authz is a Unix socket: whoever may open the socket may ask, "
            "so keep its folder to the proxy"
        )
        yield ("listen", "trusted_peers"), message


def _addresses(settings: Settings) -> Told:
    yield from _address(settings.client_ip, ("client_ip",))
    for name, own in settings.client_ip.dialects.items():
        yield from _address(own, ("client_ip", "dialects", name))


def _address(found: AddressOf, where: Location) -> Told:
    """Only one of the three is looked at, and what it leads to should be a proxy's word."""
    if found.header == FORWARDED:
        yield (*where, "header"), f"{FORWARDED} is a list, not an address alone: write header: null"
    if found.header:
        unread = f"is not read: the address is taken from {found.header} (header: null reads {FORWARDED})"
        for name in ("trusted_hops", "trusted_networks"):
            if getattr(found, name) != AddressOf.model_fields[name].default:
                yield (*where, name), unread
    elif found.trusted_networks and found.trusted_hops != AddressOf.model_fields["trusted_hops"].default:
        yield (*where, "trusted_hops"), "is not read: trusted_networks stands in its place"
    for index, written in enumerate(() if found.header else found.trusted_networks):
        if canonical_network(written).prefixlen == 0:
            message = f"holds every address: what callers write in front of {FORWARDED} would be believed"
            yield (*where, "trusted_networks", index), message


def _dropped_names(settings: Settings) -> Told:
    """NGINX drops such headers, and so does Envoy as the recipe has it: for some they are spelt with '-'."""
    identity = settings.identity
    named: dict[Location, str | None] = {
        ("client_ip", "header"): settings.client_ip.header,
        ("identity", "session_header"): identity.session_header,
        ("identity", "user_header"): identity.user_header,
        ("identity", "jwt_payload_header"): identity.jwt_payload_header,
        ("client_header",): settings.client_header,
        ("listen", "secret_header"): settings.listen.secret_header,
    }
    for dialect, own in settings.client_ip.dialects.items():
        named["client_ip", "dialects", dialect, "header"] = own.header
    for location, name in named.items():
        if name and "_" in name:
            yield location, f"most proxies drop headers with an underscore, as {name!r}: write '-'"


def _without_numbers(settings: Settings) -> Told:
    response = settings.response
    if not response.legacy_headers and not response.ietf_headers:
        message = "with ietf_headers off too, no caller is told how much is left"
        yield ("response", "legacy_headers"), message


def _gateway_statuses(settings: Settings) -> Told:
    """Traefik cannot tell whose they are; Caddy, HAProxy and NGINX do not go by the status."""
    status = settings.response.unavailable_status
    if status in (502, 504) and "proxy" in settings.listen.apis:
        message = (
            f"behind Traefik a {status} is taken for a sidecar that is gone: what `deny` refuses passes, "
            "or is answered 503 with the closed recipe"
        )
        yield ("response", "unavailable_status"), message


def _apis(settings: Settings, clients: Sequence[Client]) -> Told:
    apis, where = settings.listen.apis, ("listen", "apis")
    if "proxy" in apis or not clients:
        return
    if "evaluate" not in apis:
        yield where, "neither proxy nor evaluate is served: no rule of a client is ever asked about"
        return
    kinds = {kind for rule in ProxyNeeds(settings, clients).rules for kind in _from_headers(rule)}
    if kinds:
        message = "without proxy, callers of evaluate say themselves what is counted: "
        yield where, f"{message}{', '.join(sorted(kinds))} is read from the headers of their body"


def _from_headers(rule: Rule) -> Iterator[str]:
    for kind in identifier_types(rule.identifier_type):
        if kind.partition(":")[0] in ("header", "cookie", "jwt_claim"):
            yield kind
