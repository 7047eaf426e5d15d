"""The filters of a connection manager, and which of them asks the sidecar."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sidecar.infrastructure.config.envoy.part import Part
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds

OUR_PREFIX = re.compile(r"/(?:clients/([^/]+)/)?authz/?")


@dataclass(frozen=True, slots=True)
class Chain:
    """One connection manager."""

    manager: Part
    #: All of its HTTP filters, in their order.
    filters: Sequence[Part]
    #: The ext_authz filters that ask the sidecar.
    ours: Sequence[Part]

    @property
    def opaque(self) -> list[str]:
        """Filters whose configuration comes from elsewhere."""
        return [each["name"].text or "a filter" for each in self.filters if each["config_discovery"]]

    def holder(self, ours: Part) -> Part:
        """The filter of the list that a part stands in."""
        return self.filters[self._index(ours)]

    def before(self, ours: Part) -> Sequence[Part]:
        """The filters that a request passes first."""
        return self.filters[: self._index(ours)]

    def after(self, ours: Part) -> Sequence[Part]:
        return self.filters[self._index(ours) + 1 :]

    def _index(self, part: Part) -> int:
        return int(part.where[len(self.manager.where) + 1])


def chains(root: Part, needs: ProxyNeeds) -> Iterator[Chain]:
    for found in root.of_type("HttpConnectionManager"):
        manager = found.named("http_connection_manager")
        filters = manager["http_filters"]
        asking = [each.named("ext_authz") for each in filters.of_type("ExtAuthz") if each["http_service"]]
        yield Chain(manager, filters.items(), _ours(asking, root, needs))


def clusters(root: Part) -> dict[str, Part]:
    """By name: those of a bootstrap, and those of a file for CDS."""
    found = [*root["static_resources"]["clusters"].items(), *root.of_type("Cluster")]
    return {each["name"].text: each.named(f"cluster {each['name'].text}") for each in found}


def addresses(cluster: Part) -> Iterator[Part]:
    """The `address` of every endpoint."""
    for locality in cluster["load_assignment"]["endpoints"].items():
        for endpoint in locality["lb_endpoints"].items():
            yield endpoint["endpoint"]["address"]


def is_sidecar(address: Part, needs: ProxyNeeds) -> bool:
    """By port or socket: hosts have other names where the proxy is."""
    own = needs.settings.listen.authz_endpoint
    if own.path is not None:
        return address["pipe"]["path"].text == own.path
    return address["socket_address"]["port_value"].number == own.port


def _ours(asking: Sequence[Part], root: Part, needs: ProxyNeeds) -> Sequence[Part]:
    """One that asks by HTTP is ours; of several, those that look like it, since others may check logins."""
    if len(asking) < 2:
        return asking
    known = clusters(root)
    alike = [each for each in asking if _looks_ours(each["http_service"], known, needs)]
    return alike or asking


def _looks_ours(http: Part, known: dict[str, Part], needs: ProxyNeeds) -> bool:
    if OUR_PREFIX.fullmatch(http["path_prefix"].text):
        return True
    cluster = known.get(http["server_uri"]["cluster"].text)
    return cluster is not None and any(is_sidecar(address, needs) for address in addresses(cluster))
