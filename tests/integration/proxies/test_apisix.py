"""APISIX with deploy/apisix: the manifest fits its schema, and a real sidecar is asked as it would ask.

It needs OpenResty and cannot run here. What it sends is known from its `plugins/forward-auth.lua` and its
HTTP client, lua-resty-http; `question` and `handed_on` say the same in Python.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.lab import BY_ADDRESS, CONFIG, LIMITED, a_session, merged
from tests.proxies.process import DEPLOY
from tests.raw_http import Reply
from tests.sidecar_process import SidecarProcess

SCHEMA = yaml.safe_load(Path(__file__).parents[2].joinpath("schemas", "apisix.yaml").read_text("utf-8"))
SECRET = "it-is-a-secret-of-ours"
VARIANTS = {
    "deployed": Recipe(),
    "fail-closed": Recipe(fail_open=False, unavailable_status=500),
    "secret": Recipe(secret_header="x-sidecar-secret", secret=SECRET, ietf_headers=True, client="c"),
    "forwarded-for": Recipe(address_header=None, app="app.example:80"),
}


def manifest(recipe: Recipe) -> Any:
    return yaml.safe_load(render("apisix", recipe)["apisix.yaml"])


def plugin(recipe: Recipe) -> Any:
    return manifest(recipe)["routes"][0]["plugins"]["forward-auth"]


def question(
    conf: Any, method: str, target: str, sent: list[tuple[str, str]], peer: str = "203.0.113.7"
) -> tuple[str, dict[str, str]]:
    """Path and headers. Of what the client sent only what is listed, and of each the first."""
    first: dict[str, str] = {}
    for name, value in sent:
        first.setdefault(name.lower(), value)
    headers = {
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Method": method,
        "X-Forwarded-Host": first.get("host", "test.example").lower(),
        "X-Forwarded-Uri": target,
        "X-Forwarded-For": peer,
    }
    for name, value in conf.get("extra_headers", {}).items():
        headers[name] = value.replace("$remote_addr", peer)
    for name in conf["request_headers"]:
        if name in first and name not in headers:
            headers[name] = first[name]
    server, _, path = conf["uri"].removeprefix("http://").partition("/")
    own = {"Host": server} | (
        {} if "user-agent" in headers else {"User-Agent": "lua-resty-http/0.17.1 (Lua)"}
    )
    return f"/{path}", headers | own


def handed_on(conf: Any, answer: Reply) -> dict[str, str] | None:
    """Nothing when the request passes, else the headers that reach the client with status and body."""
    if answer.status < 300:
        return None
    return {
        name.lower(): answer.headers[name.lower()]
        for name in conf["client_headers"]
        if name.lower() in answer.headers
    }


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    listen = {"authz": "127.0.0.1:8000", "secret": SECRET}
    config = merged(CONFIG, {"listen": listen, "response": {"ietf_headers": True}})
    with SidecarProcess(tmp_path_factory.mktemp("apisix"), config) as running:
        yield running


def ask(sidecar: SidecarProcess, recipe: Recipe, *request: Any, **more: Any) -> Reply:
    path, headers = question(plugin(recipe), *request, **more)
    return sidecar.ask(plugin(recipe)["request_method"], path, headers)


@pytest.mark.parametrize("recipe", VARIANTS.values(), ids=VARIANTS)
def test_the_manifest_fits_apisix(recipe: Recipe) -> None:
    """Fields, types and bounds; and the line at the end without which APISIX reads nothing."""
    jsonschema_rs.validator_for(SCHEMA["apisix.yaml"]).validate(manifest(recipe))
    assert render("apisix", recipe)["apisix.yaml"].endswith("\n#END\n")


@pytest.mark.parametrize(("folder", "passes"), [("", True), ("fail-closed", False)])
def test_without_the_sidecar_requests_pass_or_get_a_503(folder: str, passes: bool) -> None:
    text = (DEPLOY / "apisix" / folder / "apisix.yaml").read_text("utf-8")
    conf = yaml.safe_load(text)["routes"][0]["plugins"]["forward-auth"]
    assert (conf["allow_degradation"], conf["status_on_error"]) == (passes, 503)


def test_a_refusal_reaches_the_client_whole(sidecar: SidecarProcess) -> None:
    """Every header that the sidecar sends of its own is listed."""
    recipe = VARIANTS["secret"]
    session = list(a_session().items())
    for _ in range(2):
        allowed = ask(sidecar, recipe, "GET", LIMITED, session)
        assert (allowed.status, allowed.body, handed_on(plugin(recipe), allowed)) == (200, b"", None)
    refused = ask(sidecar, recipe, "GET", f"/x/..{LIMITED}?y", session)
    assert (refused.status, refused.json["violated-policies"]) == (429, ["videos"])
    assert handed_on(plugin(recipe), refused) == {
        name: value
        for name, value in refused.headers.items()
        if name not in ("server", "date", "content-length", "connection")
    }


def test_a_caller_cannot_choose_its_address_nor_the_first_of_two(sidecar: SidecarProcess) -> None:
    """What it sends under the names that APISIX writes is not what the sidecar gets."""
    recipe = VARIANTS["secret"]
    replies = []
    for n in range(4):
        names = (
            "X-Forwarded-For",
            "x-client-ip",
            "X-Forwarded-Uri",
            "X-Forwarded-Method",
            "X-Sidecar-Secret",
        )
        forged = [(name, f"9.9.9.{n}") for name in (*names, "X-User-Id")]
        replies.append(ask(sidecar, recipe, "GET", BY_ADDRESS, [*a_session().items(), *forged]))
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert ask(sidecar, recipe, "GET", BY_ADDRESS, [], peer="203.0.113.8").status == 200


def test_who_asks_without_the_secret_is_refused(sidecar: SidecarProcess) -> None:
    """As it would be with the recipe of a configuration that has none."""
    assert ask(sidecar, VARIANTS["deployed"], "GET", "/x", []).status == 403


@pytest.mark.parametrize(
    ("path", "blocked"),
    [("/a%2fb", True), ("/a%5Cb", True), ("/a\\b", True), ("/a?next=%2Fb", False), ("/a%20b", False)],
)
def test_what_applications_read_in_two_ways_is_blocked(path: str, blocked: bool) -> None:
    """By uri-blocker, which looks for its expression in the target as it came."""
    conf = manifest(Recipe())["routes"][0]["plugins"]["uri-blocker"]
    flags = re.IGNORECASE if conf["case_insensitive"] else re.NOFLAG
    assert bool(re.search("|".join(conf["block_rules"]), path, flags)) is blocked
    assert conf["rejected_code"] == 400
