"""The ext_authz filter itself: what it asks for, how long it waits, and what it makes of no answer."""

from collections.abc import Iterator
from urllib.parse import unquote

from sidecar.infrastructure.config.envoy.chain import OUR_PREFIX, Chain
from sidecar.infrastructure.config.envoy.part import Finding, Part, seconds
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds

#: What the sidecar may need beside its store's own time.
MARGIN_MS = 100
_TOO_MANY_REQUESTS = ("TooManyRequests", "429")
_BEFORE_A_BYTE = "connect-failure"


def of_filter(ours: Part, chain: Chain, needs: ProxyNeeds) -> Iterator[Finding]:
    http = ours["http_service"]
    yield from _parts(ours, chain)
    yield from _path(http, needs)
    yield from _timeout(http, needs)
    yield from _retries(http)
    yield from _failure(ours, needs)
    if body := ours["with_request_body"]:
        yield body.warning(
            "is not needed, and Envoy answers 413 to longer bodies without asking: leave it out"
        )


def _parts(ours: Part, chain: Chain) -> Iterator[Finding]:
    """What the file switches off may be switched on elsewhere."""
    if (disabled := chain.holder(ours)["disabled"]).value is True:
        yield disabled.warning("only routes that enable the filter are asked about: leave it out")
    if enabled := ours["filter_enabled"]:
        yield enabled.note("some requests may pass unasked: how many, Envoy's runtime says")


def _path(http: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    if override := http["path_override"]:
        yield override.error("hides what the client asked for from the rules: write path_prefix: /authz")
        return
    prefix = http["path_prefix"]
    match = OUR_PREFIX.fullmatch(prefix.text)
    if match is None:
        got = f"got {prefix.text!r}" if prefix else "is missing"
        yield prefix.error(f"{got}, and the sidecar serves Envoy at /authz alone: write path_prefix: /authz")
        return
    if prefix.text.endswith("/"):
        yield prefix.warning(
            f"every target begins with two slashes then: write path_prefix: {prefix.text[:-1]}"
        )
    if match[1] is not None:
        yield from _pinned(prefix, unquote(match[1]), needs)


def _pinned(prefix: Part, name: str, needs: ProxyNeeds) -> Iterator[Finding]:
    known = [client.id for client in needs.clients]
    if name not in known:
        yield prefix.error(
            f"no file defines the client {name!r}: unless the API made it, no request is limited; "
            f"write one of {', '.join(known) or '(there is no client)'}"
        )


def _timeout(http: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    timeout, own = http["server_uri"]["timeout"], needs.settings.store.timeout_ms
    least, advised = own + MARGIN_MS, seconds(own + 2 * MARGIN_MS)
    if timeout.milliseconds is None:
        yield timeout.error(f"is missing or no duration, and Envoy needs one: write timeout: {advised}")
    elif timeout.milliseconds < least:
        yield timeout.error(
            f"{timeout.text} is too short: the sidecar may wait {own} ms for its store (store.timeout_ms), "
            f"and Envoy gives up before it can say so; write timeout: {advised}, at least {seconds(least)}"
        )


def _retries(http: Part) -> Iterator[Finding]:
    policy = http["retry_policy"]
    if policy and policy["retry_on"].text == _BEFORE_A_BYTE:
        yield policy.warning(
            "before Envoy 1.37 retry_on is not heeded here, and a check asked twice is charged twice: "
            "leave retry_policy out"
        )
    elif policy:
        yield policy.error(
            "a check asked twice is charged twice: leave retry_policy out, or retry on connect-failure alone"
        )


def _failure(ours: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    allow, status = ours["failure_mode_allow"], ours["status_on_error"]
    wanted = needs.settings.response.unavailable_status
    code = f"status_on_error: {{ code: {_name(wanted)} }}"
    if allow.value is True and needs.denies and wanted >= 500:
        yield allow.error(
            f"lets requests pass that {needs.denies} (deny) refuses, since Envoy takes its {wanted} for a "
            f"failure: write failure_mode_allow: false and {code}"
        )
    elif allow.value is True and needs.denies:
        yield allow.warning(
            f"requests pass while the sidecar is away, though {needs.denies} is deny: "
            f"write failure_mode_allow: false and {code}"
        )
    elif allow.value is not True and not status:
        yield allow.warning(
            "without status_on_error callers get 403 while the sidecar is away, "
            f"which reads like a verdict: write {code}"
        )
    if str(status["code"].value) in _TOO_MANY_REQUESTS:
        yield status["code"].warning(
            f"429 says that a limit is used up, which nobody knows then: write {code}"
        )


def _name(status: int) -> str:
    """Envoy's name of a status: `ServiceUnavailable`."""
    return {503: "ServiceUnavailable", 500: "InternalServerError", 502: "BadGateway"}.get(status, str(status))
