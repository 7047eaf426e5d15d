"""The cluster that the checks go to: where it is, and when its connections end."""

from collections.abc import Iterator

from sidecar.infrastructure.config.envoy.chain import addresses, clusters, is_sidecar
from sidecar.infrastructure.config.envoy.part import Finding, Part, seconds
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds

#: What a check takes beyond the sidecar's time for its store, with some room.
MARGIN_MS = 200
#: As long the sidecar keeps a connection on which nothing comes (`http/server.py`).
KEEPALIVE_MS = 3_630_000
_CONNECT_MS = 5000  # Envoy's default
_BREAKER = 1024  # likewise
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def of_filter(ours: Part, root: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    uri = ours["http_service"]["server_uri"]
    name = uri["cluster"]
    cluster = clusters(root).get(name.text)
    if cluster is None:
        yield _not_found(name, root)
        return
    yield from _endpoints(cluster, needs)
    yield from _protocol(cluster)
    asked = needs.settings.store.timeout_ms + MARGIN_MS
    yield from _connecting(cluster, max(asked, uri["timeout"].milliseconds or asked))
    yield from _idle(cluster)
    yield from _breakers(cluster)


def _not_found(name: Part, root: Part) -> Finding:
    dynamic = root["dynamic_resources"]
    if dynamic["cds_config"] or dynamic["ads_config"]:
        return name.note(f"the cluster {name.text!r} comes from elsewhere (CDS), nothing of it can be seen")
    return name.error(
        f"there is no cluster {name.text!r}, so no check arrives: name another, or add it to clusters"
    )


def _endpoints(cluster: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    found = list(addresses(cluster))
    if found and not any(is_sidecar(address, needs) for address in found):
        yield found[0].warning(
            f"is not where the sidecar listens (listen.authz: {needs.settings.listen.authz}), "
            "unless the port is another one from where Envoy is"
        )


def _options(cluster: Part) -> Part:
    return cluster["typed_extension_protocol_options"][_OPTIONS]


def _protocol(cluster: Part) -> Iterator[Finding]:
    explicit = _options(cluster)["explicit_http_config"]["http2_protocol_options"]
    for part in (explicit, cluster["http2_protocol_options"]):
        if part:
            yield part.error(
                "the sidecar speaks HTTP/1.1: write explicit_http_config: { http_protocol_options: {} }"
            )


def _connecting(cluster: Part, timeout: float) -> Iterator[Finding]:
    connect = cluster["connect_timeout"]
    own = connect.milliseconds or _CONNECT_MS
    if own > timeout:
        yield connect.warning(
            f"{seconds(own)} is longer than a check may take ({seconds(timeout)}), so checks pile up behind "
            f"connections that do not come about: write connect_timeout: {seconds(timeout)}"
        )


def _idle(cluster: Part) -> Iterator[Finding]:
    new = _options(cluster)["common_http_protocol_options"]["idle_timeout"]
    old = cluster["common_http_protocol_options"]["idle_timeout"]
    idle = new or old
    why = "the sidecar closes connections after 3630 s, maybe with a check on its way"
    write = "write common_http_protocol_options: { idle_timeout: 60s }"
    if not idle:
        yield new.warning(f"no idle_timeout (Envoy's default is an hour, and {why}): {write}")
    elif idle.milliseconds == 0 or (idle.milliseconds or 0) >= KEEPALIVE_MS:
        yield idle.error(f"{idle.text} is none or too long: {why}; {write}")


def _breakers(cluster: Part) -> Iterator[Finding]:
    thresholds = cluster["circuit_breakers"]["thresholds"]
    default = next(
        (each for each in thresholds.items() if each["priority"].value in (None, "DEFAULT", 0)), thresholds
    )
    low = [
        name
        for name in ("max_pending_requests", "max_requests")
        if (default[name].number or _BREAKER) <= _BREAKER
    ]
    if low:
        yield default.warning(
            f"{' and '.join(low)} at {_BREAKER} or less: in a flood further checks count as failed, unasked; "
            f"write {', '.join(f'{name}: 65536' for name in low)}"
        )
