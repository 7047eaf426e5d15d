"""`sidecar check`: what is wrong with a configuration, and with the Envoy configuration in front of it."""

import argparse
import asyncio
import sys
from pathlib import Path

from sidecar.commands.files import load_and_warn, say
from sidecar.composition import is_embedded
from sidecar.event_loop import without_collections
from sidecar.infrastructure.config.envoy.check import check_envoy
from sidecar.infrastructure.config.envoy.part import Severity
from sidecar.infrastructure.config.envoy.service import MARGIN_MS
from sidecar.infrastructure.config.loading import Configuration
from sidecar.infrastructure.config.proxy_needs import FORWARDED, ProxyNeeds
from sidecar.infrastructure.recipes import Recipe, patience_ms
from sidecar.infrastructure.redis.diagnosis import Finding, Level, diagnose

DESCRIPTION = """\
Say everything that is wrong with a configuration: errors (exit code 1), and on stderr too, as `warning: `,
what can be loaded and is hardly meant, and as `note: ` what cannot be seen in the file.
"""
_ENVOY = """\
also say what this Envoy configuration (a bootstrap in YAML or JSON) gets wrong for that one: headers that are
lost or that callers could forge, checks that are charged twice or pass unasked, time limits that do not fit
together. Errors are what lets requests pass uncounted, counts them twice or counts somebody else
"""

_CONNECT = """\
also connect to the store and try all that will be asked of it: version, eviction policy, what its user may
not do (and the least that it has to be allowed), round trip, difference of the clocks. Errors: exit code 1
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the sidecar's configuration")
    parser.add_argument("--envoy", type=Path, metavar="ENVOY", help=_ENVOY)
    parser.add_argument("--connect", action="store_true", help=_CONNECT)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Raises `ConfigurationError`."""
    with without_collections():
        configuration = load_and_warn(options.file)
    if options.envoy is None:
        _warn_of_patience(options.file, configuration)
        _note_headers(options.file, configuration)
    elif errors := _check_envoy(options.envoy, configuration):
        print(f"{options.envoy}: {_many(errors, 'error')}", file=sys.stderr)
        return 1
    if options.connect and not _check_store(options.file, configuration):
        return 1
    rules = sum(len(client.rules) for client in configuration.clients)
    print(f"{options.file}: {_many(len(configuration.clients), 'client')}, {_many(rules, 'rule')}, no error")
    if options.envoy is not None:
        print(f"{options.envoy}: no error")
    return 0


def _check_envoy(file: Path, configuration: Configuration) -> int:
    """Says all findings; returns how many of them are errors."""
    findings = check_envoy(file, ProxyNeeds(configuration.settings, configuration.clients))
    for finding in findings:
        if finding.severity is Severity.ERROR:  # as errors of the sidecar's own configuration
            print(finding.problem, file=sys.stderr)
        else:
            say(finding.severity, finding.problem)
    return sum(finding.severity is Severity.ERROR for finding in findings)


def _check_store(file: Path, configuration: Configuration) -> bool:
    """Says all findings; returns whether none of them is an error."""
    store = configuration.settings.store
    if is_embedded(configuration.settings):
        print(f"{file}: the store is embedded: `sidecar serve` starts it, there is nothing to connect to")
        return True

    async def found() -> list[Finding]:
        return [finding async for finding in diagnose(store.url, store.key_prefix, store.timeout_ms)]

    findings = asyncio.run(found())
    for finding in findings:
        if finding.level is Level.OK:
            print(f"store: {finding.text}")
        else:
            print(f"{finding.level}: store: {finding.text}", file=sys.stderr)
    return not any(finding.level is Level.ERROR for finding in findings)


def _warn_of_patience(file: Path, configuration: Configuration) -> None:
    """Of a proxy that gives up first. Other commands say nothing: the proxy may have a recipe of its own."""
    settings, shipped = configuration.settings, Recipe().timeout_ms
    timeout = settings.store.timeout_ms
    if "proxy" in settings.listen.apis and timeout + MARGIN_MS > shipped:
        say(
            "warning",
            f"{file}: store.timeout_ms: is {timeout}, and the recipes in deploy/ wait {shipped} ms for an "
            "answer: they take a sidecar that waits for its store for one that is gone; `sidecar recipe` "
            f"prints one that waits {patience_ms(timeout)} ms",
        )


def _note_headers(file: Path, configuration: Configuration) -> None:
    """What callers must not write, and whether they can is said by the proxy's configuration alone."""
    settings = configuration.settings
    needs = ProxyNeeds(settings, configuration.clients)
    names = list(needs.used_identities)
    if needs.address:
        sources = [settings.client_ip, *settings.client_ip.dialects.values()]
        names += [source.header or FORWARDED for source in sources]
    if names and "proxy" in settings.listen.apis:
        listed = ", ".join(dict.fromkeys(names))
        say(
            "note",
            f"{file}: whether callers can write {listed} themselves cannot be seen here: the proxy has to "
            "set or remove that on every request, see `sidecar recipe PROXY` and `sidecar check --envoy`",
        )


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
