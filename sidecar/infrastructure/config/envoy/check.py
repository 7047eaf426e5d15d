"""What an Envoy configuration gets wrong for the sidecar, each with its place and with what to write.

An error is what lets requests pass uncounted, counts them twice or lets callers choose whose limit they use;
a warning is what costs something, or matters in some deployments; a note is what cannot be seen in the file.
"""

from collections.abc import Iterator
from pathlib import Path

from sidecar.infrastructure.config.envoy import cluster, edge, headers, service
from sidecar.infrastructure.config.envoy.chain import Chain, chains
from sidecar.infrastructure.config.envoy.part import Finding, Part
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds
from sidecar.infrastructure.config.yaml_source import read_document

_ADD = "add envoy.filters.http.ext_authz with an http_service (`sidecar recipe envoy` prints one)"


def check_envoy(path: Path, needs: ProxyNeeds) -> list[Finding]:
    """All findings by line, each once. Raises `ConfigurationError` where the file cannot be read."""
    document = read_document(path, None)
    if document.problems:
        raise ConfigurationError(document.problems)
    findings = dict.fromkeys(_findings(Part(document, (), document.value), needs))
    return sorted(findings, key=lambda finding: finding.problem.line or 0)


def _findings(root: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    found = list(chains(root, needs))
    asking = [chain for chain in found if chain.ours]
    if not asking:
        yield from _nobody_asks(root, found)
    elif others := [chain for chain in found if not chain.ours]:
        yield others[0].manager.note("asks nobody, so what comes in here is not limited")
    for chain in asking:
        yield from edge.of_chain(chain, needs)
        for ours in chain.ours:
            yield from service.of_filter(ours, chain, needs)
            yield from headers.of_filter(ours, chain, needs)
            yield from cluster.of_filter(ours, root, needs)


def _nobody_asks(root: Part, found: list[Chain]) -> Iterator[Finding]:
    """Where the file says that the rest is elsewhere, that is no error of this file."""
    dynamic = root["dynamic_resources"]
    if found and not any(chain.opaque for chain in found):
        yield found[0].manager["http_filters"].error(f"no filter asks the sidecar: {_ADD}")
    elif found:
        opaque = next(name for chain in found for name in chain.opaque)
        yield (
            found[0]
            .manager["http_filters"]
            .warning(
                f"no filter asks the sidecar, unless {opaque} does, which is configured elsewhere: {_ADD}"
            )
        )
    elif dynamic["lds_config"] or dynamic["ads_config"]:
        yield dynamic.warning(
            "the listeners come from elsewhere (LDS), nothing of them can be seen: check the file with them"
        )
    else:
        yield root.error(f"no http_connection_manager is in here, so nothing asks the sidecar: {_ADD}")
