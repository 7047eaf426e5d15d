"""The templates: what stands in `deploy/` is theirs, and what they make of other values can be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sidecar.infrastructure.recipes import CannotRender, Recipe, proxies, render, together
from sidecar.infrastructure.recipes.abilities import address_advice, check
from tests.proxies.write_recipes import DEPLOY, files_of

WRITE = "`python -m tests.proxies.write_recipes` writes the files of deploy/ anew"
EVERYTHING = Recipe(
    listen="[::]:10000",
    app="app.internal:8080",
    sidecar="[::1]:8000",
    client="shop",
    fail_open=False,
    unavailable_status=500,
    timeout_ms=1200,
    address_header="x-edge-ip",
    secret_header="x-edge-secret",
    secret="0123456789abcdef",
    passed_headers=("x-request-id", "x-plan"),
    forgeable_headers=("x-member", "x-tenant"),
    ietf_headers=True,
    envoy_ratelimited=True,
)
NOTHING = Recipe(address_header=None, passed_headers=("x-request-id",), forgeable_headers=())


def texts(proxy: str, recipe: Recipe) -> str:
    return "\n".join(render(proxy, recipe).values())


def documents(proxy: str, recipe: Recipe) -> Iterator[object]:
    for name, text in render(proxy, recipe).items():
        if name.endswith((".yaml", ".yml")):
            yield from yaml.safe_load_all(text)


@pytest.mark.parametrize("proxy", proxies())
def test_the_files_of_deploy_are_what_the_templates_give(proxy: str) -> None:
    """Byte for byte; so what is tested with the real proxies is what `sidecar recipe` prints."""
    expected = files_of(proxy)
    for path, text in expected.items():
        assert path.exists(), f"{path} is missing: {WRITE}"
        assert path.read_text("utf-8") == text, f"{path} is another one: {WRITE}"
    there = {path for path in (DEPLOY / proxy).rglob("*") if path.is_file()}
    assert there <= set(expected), f"no template gives {there - set(expected)}"


def test_every_folder_of_proxies_has_templates() -> None:
    """Nothing in it is kept by hand."""
    others = {"compose"}
    folders = {path.name for path in DEPLOY.iterdir() if path.is_dir() and any(path.rglob("*.*"))}
    assert folders - others <= set(proxies())


@pytest.mark.parametrize("proxy", proxies())
@pytest.mark.parametrize("recipe", [Recipe(), EVERYTHING, NOTHING], ids=["defaults", "everything", "nothing"])
def test_every_rendering_is_complete_and_readable(proxy: str, recipe: Recipe) -> None:
    """YAML is YAML, no line of a template is left over, and no line is blank but for the eye."""
    assert all(document is not None for document in documents(proxy, recipe))
    for name, text in render(proxy, recipe).items():
        assert "{%" not in text, name
        assert not any("None" in line.partition("#")[0] for line in text.splitlines()), name
        assert text.endswith("\n"), name
        assert not text.endswith("\n\n"), name


@pytest.mark.parametrize("proxy", [name for name in proxies() if name not in ("kubernetes", "ingress-nginx")])
def test_what_is_read_of_callers_and_what_is_not_theirs_stands_in_the_recipe(proxy: str) -> None:
    """Each header by its name, in whichever case that proxy writes it."""
    text = texts(proxy, EVERYTHING).lower()
    # NGINX hands over all but what its recipe takes out, APISIX nothing but what its recipe names.
    passed = () if proxy == "nginx" else ("x-plan",)
    taken_out = () if proxy == "apisix" else ("x-member", "x-tenant")
    for name in (*passed, *taken_out):
        assert name in text, name


@pytest.mark.parametrize("proxy", [name for name in proxies() if name != "kubernetes"])
def test_a_pinned_client_stands_in_the_path(proxy: str) -> None:
    """Where the proxy's operator writes it, no caller chooses."""
    assert "/clients/shop/" in texts(proxy, EVERYTHING)
    assert "/clients/" not in texts(proxy, Recipe())


@pytest.mark.parametrize("proxy", [name for name in proxies() if name != "kubernetes"])
def test_a_secret_stands_in_the_recipe_under_its_name(proxy: str) -> None:
    """The proxy says it, and no caller."""
    text = texts(proxy, EVERYTHING).lower()
    assert "x-edge-secret" in text
    assert "0123456789abcdef" in text


def test_several_files_are_told_apart_by_comments_of_their_kind() -> None:
    """Whoever pipes them into one file still has a file without errors."""
    rendered = {"a.yaml": "a: 1\n", "b.lua": "return 1\n", "c.js": "1;\n", "Caddyfile": "x\n"}
    assert together(rendered) == (
        "# ---- a.yaml\na: 1\n\n-- ---- b.lua\nreturn 1\n\n// ---- c.js\n1;\n\n# ---- Caddyfile\nx\n"
    )
    assert together({"a.yaml": "a: 1\n"}) == "a: 1\n"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"app": "app"}, "an address is host:port, got 'app'"),
        ({"listen": "unix:/run/x"}, "an address is host:port, got 'unix:/run/x'"),
        (
            {"sidecar": "unix:/run/a b"},
            "the sidecar's address is host:port or unix:/path, got 'unix:/run/a b'",
        ),
        (
            {"passed_headers": ("x$y",)},
            "the names of headers have letters, digits, '-', '_' and '.' here, got 'x$y'",
        ),
        (
            {"address_header": "x y"},
            "the names of headers have letters, digits, '-', '_' and '.' here, got 'x y'",
        ),
    ],
)
def test_what_would_mean_something_to_a_proxy_is_refused(values: dict[str, str], says: str) -> None:
    """Nothing can be written around a template."""
    with pytest.raises(CannotRender) as refused:
        Recipe(**values)  # type: ignore[arg-type]
    assert str(refused.value) == says


@pytest.mark.parametrize("secret", ['0123456789"}}abc', "0123456789$abcdef", "0123456789\\abcdef"])
@pytest.mark.parametrize("proxy", proxies())
def test_a_secret_that_a_template_cannot_write_is_refused_and_not_repeated(proxy: str, secret: str) -> None:
    """A quote would end the value; in NGINX a `$` begins a variable, whose value anybody may send."""
    with pytest.raises(CannotRender) as refused:
        check(proxy, Recipe(secret_header="x-s", secret=secret))
    assert str(refused.value) == (
        f"the secret has characters that mean something to {proxy}: leave --show-secret out, "
        "and write it in by hand"
    )


def test_a_proxy_that_cannot_write_the_header_of_the_address_says_what_the_sidecar_needs() -> None:
    """Else all callers would share one bucket."""
    assert address_advice("traefik", Recipe()) == (
        "traefik cannot write x-client-ip, it says the address in X-Forwarded-For alone: "
        "the configuration needs client_ip: { dialects: { forward-auth: { header: null } } }"
    )
    assert address_advice("traefik", Recipe(address_header=None)) is None
    assert address_advice("caddy", Recipe()) is None


@pytest.mark.parametrize(
    "proxy", ["traefik", "apisix", "istio", "envoy-gateway", "kubernetes", "ingress-nginx"]
)
def test_a_proxy_that_cannot_ask_at_a_socket_says_so(proxy: str) -> None:
    """With what to do about it."""
    with pytest.raises(
        CannotRender, match=f"^{proxy} cannot ask at a Unix socket, and the sidecar is at unix:/run/s"
    ):
        check(proxy, Recipe(sidecar="unix:/run/s"))


@pytest.mark.parametrize(
    "proxy", [name for name in ("nginx", "caddy", "haproxy", "envoy") if name in proxies()]
)
def test_a_socket_stands_in_the_recipe_of_those_that_can(proxy: str, tmp_path: Path) -> None:
    """Each in its own words."""
    recipe = Recipe(sidecar="unix:/run/sidecar.sock")
    check(proxy, recipe)
    assert "/run/sidecar.sock" in texts(proxy, recipe)
    assert "127.0.0.1:8000" not in texts(proxy, recipe)
    assert None not in documents(proxy, recipe)


@pytest.mark.parametrize(
    "proxy", [name for name in proxies() if name not in ("kubernetes", "traefik", "nginx")]
)
def test_the_recipe_hands_on_whatever_a_sidecar_says_of_an_allowed_request(proxy: str) -> None:
    """Each of its headers, whichever case the proxy writes."""
    text = texts(proxy, EVERYTHING).lower()
    assert [name for name in EVERYTHING.numbers if name.lower() not in text] == []


@pytest.mark.parametrize(
    ("values", "port"),
    [
        ({}, 10001),
        ({"listen": "[::]:80", "app": "app:81"}, 82),
        ({"listen": "0.0.0.0:65535", "sidecar": "h:65534"}, 65533),
        ({"sidecar": "unix:/run/s"}, 10001),
    ],
)
def test_a_proxy_that_asks_itself_first_has_a_port_for_it(values: dict[str, str], port: int) -> None:
    """Beside the one that it listens on, and no other's."""
    assert Recipe(**values).own_port == port  # type: ignore[arg-type]
