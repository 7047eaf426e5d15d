"""Every proxy of the matrix."""

from tests.proxies import caddy, envoy, haproxy, nginx, traefik
from tests.proxies.process import Proxy

PROXIES: list[Proxy] = [
    *envoy.PROXIES,
    *nginx.PROXIES,
    *traefik.PROXIES,
    *caddy.PROXIES,
    *haproxy.PROXIES,
]
