"""Envoys for browsers: envoy.yaml with a cors filter where it belongs, and where it does not."""

from typing import Any

from sidecar.infrastructure.recipes import Recipe
from tests.proxies.envoy_variants import connection_manager, recipe_with, virtual_host
from tests.proxies.process import Proxy

_TYPES = "type.googleapis.com/envoy.extensions.filters.http.cors.v3"
#: What `sidecar recipe` passes for `count_preflights: false`, which tells a preflight from other requests.
_RECIPE = Recipe(passed_headers=("x-session-id", "origin", "access-control-request-method"))


def cors(origin: str, *, before: bool) -> tuple[Proxy, int]:
    """With a policy that lets this origin see `Retry-After` and the numbers; and the port."""

    def change(configuration: Any) -> None:
        virtual_host(configuration)["typed_per_filter_config"] = {"envoy.filters.http.cors": _policy(origin)}
        cors_filter = {"name": "envoy.filters.http.cors", "typed_config": {"@type": f"{_TYPES}.Cors"}}
        connection_manager(configuration)["http_filters"].insert(0 if before else 1, cors_filter)

    return recipe_with(change, _RECIPE)


def _policy(origin: str) -> dict[str, Any]:
    return {
        "@type": f"{_TYPES}.CorsPolicy",
        "allow_origin_string_match": [{"exact": origin}],
        "allow_methods": "GET, POST",
        "allow_headers": "x-session-id",
        "expose_headers": "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
    }
