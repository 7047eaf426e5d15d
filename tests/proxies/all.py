"""Every proxy of the matrix; those that need the same of the sidecar stand together."""

from tests.proxies import caddy, envoy, haproxy, nginx, traefik
from tests.proxies.process import Proxy

PROXIES: list[Proxy] = [
    *envoy.PROXIES,
    *nginx.PROXIES,
    *caddy.PROXIES,
    *haproxy.PROXIES,
    *traefik.PROXIES,
]
