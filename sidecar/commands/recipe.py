"""`sidecar recipe`: the configuration of a proxy that fits a configuration of the sidecar."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from sidecar.commands.files import DEFAULTS, default_file, load_and_warn, say
from sidecar.infrastructure.config.listen import Endpoint
from sidecar.infrastructure.config.loading import Configuration
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds
from sidecar.infrastructure.explanation import did_you_mean
from sidecar.infrastructure.recipes import (
    PLACEHOLDER,
    CannotRender,
    Recipe,
    patience_ms,
    proxies,
    render,
    together,
)
from sidecar.infrastructure.recipes.abilities import address_advice, check, proxy

DESCRIPTION = """\
Print the configuration of a proxy that asks this sidecar about every request. Addresses, time limits, the
pinned client, and which headers are handed over, set or removed are those of the sidecar's configuration.
Several files are printed one after the other, each after a comment with its name.
"""
#: Of a file that has the secret, and of others what `umask` leaves of it.
SECRET_MODE, MODE = 0o600, 0o666


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proxy", metavar="PROXY", help=f"one of {', '.join(proxies())}")
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=DEFAULTS)
    own = Recipe()
    parser.add_argument(
        "--listen", default=own.listen, metavar="ADDRESS", help=f"where the proxy listens: {own.listen}"
    )
    parser.add_argument("--app", default=own.app, metavar="ADDRESS", help=f"the application: {own.app}")
    parser.add_argument(
        "--sidecar",
        metavar="ADDRESS",
        help="where the proxy sees the sidecar: host:port, or unix:/path; default: listen.authz",
    )
    parser.add_argument("--client", metavar="ID", help="the client whose rules apply; default: found by host")
    failing = parser.add_mutually_exclusive_group()
    failing.add_argument(
        "--fail-open",
        action="store_true",
        default=None,
        help="requests pass while the sidecar is gone; the default, unless on_unavailable of the store or "
        "of a rule is deny",
    )
    failing.add_argument(
        "--fail-closed",
        action="store_false",
        dest="fail_open",
        help="requests get response.unavailable_status while the sidecar is gone",
    )
    parser.add_argument(
        "--show-secret", action="store_true", help="write listen.secret itself, not a placeholder for it"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="write the files into this folder instead"
    )
    parser.add_argument("--force", action="store_true", help="with -o: overwrite files that are there")
    parser.set_defaults(run=run, fail=parser.error)


def run(options: argparse.Namespace) -> int:
    """Raises `ConfigurationError`; what the command line gets wrong ends it with exit code 2."""
    if options.proxy not in (known := proxies()):
        options.fail(
            f"there is no recipe for {options.proxy!r}; there are {', '.join(known)}"
            + did_you_mean(options.proxy, known)
        )
    file = options.config or default_file()
    configuration = load_and_warn(file)
    _warn_of_client(options, configuration, file)
    try:
        recipe = _recipe(options, configuration)
        check(options.proxy, recipe)
        rendered = render(options.proxy, recipe)
    except (CannotRender, ValueError) as error:
        options.fail(str(error))
    if advice := address_advice(options.proxy, recipe):
        say("warning", advice)
    if any(PLACEHOLDER in text for text in rendered.values()):
        say("note", f"listen.secret belongs where {PLACEHOLDER} stands (--show-secret writes it there)")
    if options.output is None:
        sys.stdout.write(together(rendered))
        return 0
    return _write(options, rendered, _with_secret(options.proxy, recipe))


def _warn_of_client(options: argparse.Namespace, configuration: Configuration, file: Path) -> None:
    """No error: the API may have made that client, or be about to."""
    known = [client.id for client in configuration.clients]
    if options.client is not None and options.client not in known:
        say(
            "warning",
            f"argument --client: {file} does not define {options.client!r}: until the API makes it, no "
            f"request is limited{did_you_mean(options.client, known)}",
        )


def _recipe(options: argparse.Namespace, configuration: Configuration) -> Recipe:
    settings = configuration.settings
    needs = ProxyNeeds(settings, configuration.clients)
    fail_open = options.fail_open
    recipe = Recipe(
        listen=_host_port(options.listen, "--listen"),
        app=_host_port(options.app, "--app"),
        sidecar=_address(options.sidecar or _reachable(settings.listen.authz_endpoint), "--sidecar"),
        client=options.client,
        fail_open=needs.denies is None if fail_open is None else fail_open,
        unavailable_status=settings.response.unavailable_status,
        timeout_ms=patience_ms(settings.store.timeout_ms),
        address_header=settings.client_ip.of(proxy(options.proxy).dialect).header,
        passed_headers=needs.passed,
        forgeable_headers=needs.identities,
        ietf_headers=settings.response.ietf_headers,
        envoy_ratelimited=settings.response.envoy_ratelimited,
    )
    secrets = settings.listen.secrets
    if not secrets:
        return recipe
    secret = secrets[0] if options.show_secret else PLACEHOLDER
    return replace(recipe, secret_header=settings.listen.secret_header, secret=secret)


def _reachable(endpoint: Endpoint) -> str:
    """Whoever listens everywhere is asked at the loopback address."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 read, not bound
    host = everywhere.get(endpoint.host, endpoint.host)
    return str(Endpoint(host, endpoint.port, endpoint.path))


def _address(text: str, option: str) -> str:
    try:
        return str(Endpoint.parse(text))
    except ValueError as error:
        raise CannotRender(f"argument {option}: {error}") from None


def _host_port(text: str, option: str) -> str:
    """Where a socket has no place, and a port that is chosen later could not be told to anybody."""
    try:
        endpoint = Endpoint.parse(text)
    except ValueError:
        endpoint = Endpoint()
    if not endpoint.port:
        raise CannotRender(f"argument {option}: expected host:port or [::1]:port, got {text!r}")
    return str(endpoint)


def _with_secret(name: str, recipe: Recipe) -> set[str]:
    """The files that have the secret, however that proxy writes it."""
    if recipe.secret in (None, PLACEHOLDER):
        return set()
    without = render(name, replace(recipe, secret=PLACEHOLDER))
    return {file for file, text in render(name, recipe).items() if text != without[file]}


def _write(options: argparse.Namespace, rendered: dict[str, str], secret: set[str]) -> int:
    """All files or none: what is there already is seen before anything is written."""
    folder: Path = options.output
    there = [str(folder / name) for name in rendered if (folder / name).exists()]
    if there and not options.force:
        options.fail(f"{', '.join(there)}: is there already; --force overwrites")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in rendered.items():
            _write_file(folder / name, text, SECRET_MODE if name in secret else MODE)
    except OSError as error:
        options.fail(f"argument -o/--output: {error.filename}: {error.strerror}")
    return 0


def _write_file(path: Path, text: str, mode: int) -> None:
    """A file that was there and gets the secret is closed to others before it is in it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        if mode == SECRET_MODE:
            os.fchmod(descriptor, mode)
        file.write(text)
    print(path)
