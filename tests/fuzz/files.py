"""What people write: configurations, env files, store URLs, values for recipes, Envoy's own file."""

import contextlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from sidecar.domain.errors import InvalidValue
from sidecar.infrastructure.config.env_file import read_env_file
from sidecar.infrastructure.config.envoy.check import check_envoy
from sidecar.infrastructure.config.loading import load
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.config.store_url import check_store_url
from sidecar.infrastructure.recipes import CannotRender, Recipe, abilities, proxies, render
from tests.fuzz.texts import changed, json_values, spoilt, text

ROOT = Path(__file__).parents[2]
SECRET = "kept-secret-0123456789"


@cache
def _folder() -> Path:
    """Where the file is written that is to be read; it goes with the process."""
    keep = tempfile.TemporaryDirectory(prefix="fuzz-")
    _kept.append(keep)
    return Path(keep.name)


_kept: list[Any] = []


def _written(text: str, name: str = "fuzz.yaml") -> Path:
    path = _folder() / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def configuration_holds(given: tuple[str, dict[str, str]]) -> None:
    """It is a configuration, or all that is wrong is said, without the values that the environment has."""
    written, environ = given
    try:
        load(_written(written), environ | {"SECRET": SECRET})
    except ConfigurationError as error:
        _said(error)


def _said(error: ConfigurationError) -> None:
    assert error.problems
    _keeps_quiet(str(error))


def _keeps_quiet(message: str) -> None:
    assert SECRET not in message, message


def env_file_holds(written: str) -> None:
    try:
        found = read_env_file(_written(written, "env"))
    except ConfigurationError as error:
        _said(error)
        return
    assert all(isinstance(value, str) for value in found.values())


def store_url_holds(url: str) -> None:
    """A password is never repeated."""
    try:
        check_store_url(url)
    except ValueError as error:
        _keeps_quiet(str(error))


def envoy_holds(written: str) -> None:
    with contextlib.suppress(ConfigurationError):
        findings = check_envoy(_written(written, "envoy.yaml"), ProxyNeeds(Settings(), ()))
        assert all(finding.problem.message for finding in findings)


def recipe_holds(given: tuple[str, dict[str, Any]]) -> None:
    """Values become text of a file that says the same as with others, or are refused."""
    proxy, values = given
    try:
        recipe = Recipe(**values)
        abilities.check(proxy, recipe)
    except (CannotRender, InvalidValue):
        return
    usual = render(proxy, Recipe(**_shape(values)))
    for name, made in render(proxy, recipe).items():
        if name.endswith(".yaml"):
            assert _form(made) == _form(usual[name]), (name, values)


def _shape(values: dict[str, Any]) -> dict[str, Any]:
    """Usual values in the same places, which must give the same form."""
    usual = {**values, "secret": "usual" * 4} if values.get("secret") is not None else dict(values)
    if values.get("client") is not None:
        usual["client"] = "usual"
    return usual


def _form(text: str) -> Any:
    """What a YAML file is but for the text of its values."""

    def form(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: form(value) for key, value in node.items()}
        if isinstance(node, list):
            return [form(value) for value in node]
        return type(node)

    return [form(document) for document in yaml.safe_load_all(text)]


def configurations() -> st.SearchStrategy[Any]:
    right = [(ROOT / path).read_text() for path in ("config/sidecar.yaml", "deploy/compose/sidecar.yaml")]
    rich = [*right, yaml.safe_dump(RICH), "a: &a [1, 2]\nb: *a\n<<: {c: 1}\n"]
    trees = changed(RICH).map(lambda made: yaml.safe_dump(_encodable(made)))
    environ = st.dictionaries(st.sampled_from(["REDIS_URL", "X", "LOG_LEVEL", "SIDECAR_ADMIN_KEY"]), text(3))
    return st.tuples(spoilt(rich) | trees | text(20), environ)


def _encodable(tree: Any) -> Any:
    """YAML's writer knows no lone surrogates."""
    if isinstance(tree, dict):
        return {_encodable(key): _encodable(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_encodable(value) for value in tree]
    return tree.encode("utf-8", "replace").decode() if isinstance(tree, str) else tree


def env_files() -> st.SearchStrategy[str]:
    return text(20) | spoilt(["A=b\n# c\nexport X='y z'\nSIDECAR_ADMIN_KEY=\"q\"\n"])


def store_urls() -> st.SearchStrategy[str]:
    return text(8) | spoilt(
        [
            f"redis://user:{SECRET}@host:6379/0",
            f"rediss://:{SECRET}@[::1]:6380/1?ssl_cert_reqs=none",
            f"unix://u:{SECRET}@/run/redis.sock?db=2",
            f"redis+cluster://u:{SECRET}@a:1,b:2",
            f"redis+sentinel://u:{SECRET}@a:1,b:2/main/0",
            "embedded:/var/lib/x",
        ]
    )


def envoy_files() -> st.SearchStrategy[str]:
    right = (ROOT / "envoy.yaml").read_text()
    trees = changed(yaml.safe_load(right)).map(lambda made: yaml.safe_dump(_encodable(made)))
    return spoilt([right]) | trees | json_values().map(lambda made: yaml.safe_dump(_encodable(made)))


def recipes() -> st.SearchStrategy[Any]:
    address = st.sampled_from(["127.0.0.1:1", "[::1]:2", "unix:/run/s", "h.example:3"]) | text(3)
    name = st.sampled_from(["x-a", "x-client-ip"]) | text(3)
    values = st.fixed_dictionaries(
        {},
        optional={
            "sidecar": address,
            "app": address,
            "listen": address,
            "client": st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
            "address_header": st.none() | name,
            "secret_header": st.just("x-sidecar-secret"),
            "secret": st.text(
                st.characters(min_codepoint=32, max_codepoint=126), min_size=16, max_size=40
            ).filter(lambda made: made == made.strip()),
            "passed_headers": st.lists(name, max_size=3).map(tuple),
            "timeout_ms": st.integers(1, 60_000),
            "fail_open": st.booleans(),
        },
    ).map(lambda made: made | {"secret_header": "x-sidecar-secret"} if "secret" in made else _without(made))
    return st.tuples(st.sampled_from(proxies()), values)


def _without(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "secret_header"}


RICH: dict[str, Any] = {
    "store": {"url": "redis://u:${SECRET}@h:6379/0", "timeout_ms": 50, "on_unavailable": "local"},
    "listen": {"authz": "127.0.0.1:8000", "trusted_peers": ["private", "10.0.0.0/8"], "secret": "${SECRET}"},
    "client_ip": {"header": None, "trusted_hops": 2, "dialects": {"nginx": {"header": "x-real-ip"}}},
    "identity": {"on_missing": "deny"},
    "admin": {"keys": [{"name": "ops", "key": "${SECRET}", "role": "admin"}]},
    "default_client": "a",
    "clients": [
        {
            "id": "a",
            "hosts": ["*.example.com"],
            "exempt_ips": ["192.0.2.0/24"],
            "shard_by": "identifier",
            "rules": [
                {
                    "route": "/users/{id}/b",
                    "method": ["GET", "POST"],
                    "identifier_type": ["ip", "path:id"],
                    "algorithm": "token_bucket",
                    "limit": 10,
                    "burst": 20,
                    "window_seconds": 60,
                    "overrides": {"192.0.2.1|7": "block"},
                    "response": {"status": 420, "body": "{}", "content_type": "application/json"},
                }
            ],
        }
    ],
}
