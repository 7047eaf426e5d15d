"""What each proxy can do, as far as a recipe's values depend on it."""

import re
from dataclasses import dataclass

from sidecar.infrastructure.recipes import CannotRender, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """By which dialect it asks, and where from."""

    dialect: str
    #: Whether it can ask at a Unix socket.
    sockets: bool = True
    #: Whether it can write the address alone into a header of any name; else X-Forwarded-For has it.
    address_headers: bool = True


#: What is the same in all their languages, quoted or not; NGINX has no way to write a `$` in quotes.
_PLAIN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_KNOWN = {
    "nginx": Proxy(dialect="nginx"),
    "ingress-nginx": Proxy(dialect="ingress-nginx", sockets=False),
    "traefik": Proxy(dialect="forward-auth", sockets=False, address_headers=False),
    "caddy": Proxy(dialect="forward-auth"),
    "haproxy": Proxy(dialect="forward-auth"),
    "apisix": Proxy(dialect="forward-auth", sockets=False),
    "istio": Proxy(dialect="envoy", sockets=False),
    "envoy-gateway": Proxy(dialect="envoy", sockets=False),
    "kubernetes": Proxy(dialect="envoy", sockets=False),
}


def proxy(name: str) -> Proxy:
    """Of a template that nothing is said about here, it is taken that it can do all that Envoy can."""
    return _KNOWN.get(name, Proxy(dialect="envoy"))


def check(name: str, recipe: Recipe) -> None:
    """Raises `CannotRender` for what that proxy cannot do, or its template cannot write."""
    if recipe.secret and not _PLAIN.fullmatch(recipe.secret):  # which is not repeated
        raise CannotRender(
            f"the secret has characters that mean something to {name}: leave --show-secret out, "
            "and write it in by hand"
        )
    if recipe.sidecar.startswith("unix:") and not proxy(name).sockets:
        raise CannotRender(
            f"{name} cannot ask at a Unix socket, and the sidecar is at {recipe.sidecar}: "
            "give listen.authz a port, or say with --sidecar host:port where else it is"
        )


def address_advice(name: str, recipe: Recipe) -> str | None:
    """What the sidecar's configuration needs where a proxy cannot do as it says."""
    if proxy(name).address_headers or recipe.address_header is None:
        return None
    dialect = proxy(name).dialect
    return (
        f"{name} cannot write {recipe.address_header}, it says the address in X-Forwarded-For alone: "
        f"the configuration needs client_ip: {{ dialects: {{ {dialect}: {{ header: null }} }} }}"
    )
