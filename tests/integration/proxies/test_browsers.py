"""What a page sees that asks another origin, in a real browser: Envoy with a cors filter, and without.

The application (where the page comes from) is one origin, Envoy before it another. Every request has a header
that is not for simple requests, so the browser asks with a preflight first.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest

from tests.browser import Browser
from tests.envoy_process import APP_PORT
from tests.parts import require, until
from tests.proxies.checks import counted
from tests.proxies.cors import cors
from tests.proxies.envoy import ENVOY
from tests.proxies.lab import CONFIG, HOUR, LIMIT, LIMITED, SHORT, Lab, a_session, lab
from tests.proxies.process import PROXY_PORT, running

ORIGIN = f"http://127.0.0.1:{APP_PORT}"
PER_NAME = {"id": "name", "route": "/count/{name}", "identifier_type": ["ip", "path:name"], "limit": 10}
RULES = [*CONFIG["clients"][0]["rules"], {**PER_NAME, **HOUR}]
#: What a script gets; and one that asks until it is refused, and again after having waited as it is told.
FETCH = """
    fetch({address}, {{headers: {headers}}}).then(
        reply => [reply.status, reply.headers.get("Retry-After"), reply.headers.get("X-RateLimit-Remaining"),
                  reply.headers.get("X-RateLimit-Rule")],
        error => [String(error)]
    )
"""
PATIENT_FETCH = """
    (async () => {{
        const ask = () => fetch({address}, {{headers: {headers}}});
        let reply = await ask();
        while (reply.ok) reply = await ask();
        const wait = Number(reply.headers.get("Retry-After"));
        await new Promise(done => setTimeout(done, wait * 1000));
        return [reply.status, wait, (await ask()).status];
    }})()
"""
#: All that a page is told about what it may not see.
NETWORK_ERROR = ["TypeError: Failed to fetch"]


class Scene(NamedTuple):
    """Envoys in front of the same: the recipe unchanged, and with the filter before and behind ext_authz."""

    lab: Lab
    before: int
    behind: int
    plain: int = PROXY_PORT


BOTH = pytest.mark.parametrize("scene", [True, False], indirect=True, ids=["counted", "not counted"])
COUNTED = pytest.mark.parametrize("scene", [True], indirect=True, ids=["counted"])


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """With preflights counted, or not."""
    config = {"clients": [{"id": "c", "rules": RULES}], "count_preflights": request.param}
    directory = tmp_path_factory.mktemp("lab")
    (before, at), (behind, behind_at) = cors(ORIGIN, before=True), cors(ORIGIN, before=False)
    folders = [tmp_path_factory.mktemp(name) for name in ("before", "behind")]
    with (
        lab(ENVOY, directory, config=config) as laboratory,
        running(before, folders[0]),
        running(behind, folders[1]),
    ):
        yield Scene(laboratory, at, behind_at)


@pytest.fixture
async def page(scene: Scene) -> AsyncIterator[Browser]:
    async with Browser(require("chromium")) as browser:
        await browser.send("Page.navigate", url=f"{ORIGIN}/page")
        await until(lambda: browser.evaluate(f"location.origin === '{ORIGIN}'"), "the page")
        yield browser


async def run(page: Browser, script: str, port: int, target: str, headers: dict[str, str]) -> Any:
    """What the script's promise gives."""
    address = json.dumps(f"http://127.0.0.1:{port}{target}")
    expression = script.format(address=address, headers=json.dumps(headers))
    answer = await page.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
    return answer["result"]["value"]


@COUNTED
async def test_with_the_filter_before_ours_a_page_sees_the_refusal(scene: Scene, page: Browser) -> None:
    """Its status, how long to wait, and of the rest what the policy exposes; preflights do not reach us."""
    session = a_session()
    with counted(scene.lab.sidecar) as checks:
        seen = [await run(page, FETCH, scene.before, LIMITED, session) for _ in range(LIMIT + 1)]
    print(f"\nfetch, cors before ext_authz: {seen}")
    assert seen[:LIMIT] == [[200, None, str(LIMIT - 1 - n), None] for n in range(LIMIT)]
    status, wait, remaining, rule = seen[-1]
    assert (status, remaining, rule) == (429, "0", None)
    assert 3500 < int(wait) <= 3600
    assert checks.number == LIMIT + 1


@COUNTED
async def test_a_page_that_waits_passes(scene: Scene, page: Browser) -> None:
    """A script can read `Retry-After` and do what it says."""
    assert await run(page, PATIENT_FETCH, scene.before, SHORT, a_session()) == [429, 1, 200]


@COUNTED
async def test_with_the_filter_behind_ours_a_refusal_is_a_network_error(scene: Scene, page: Browser) -> None:
    """What passes has what browsers want, a refusal has not; the console says so, the script cannot know."""
    session = a_session()
    seen = [await run(page, FETCH, scene.behind, LIMITED, session) for _ in range(LIMIT + 1)]
    print(f"\nfetch, cors behind ext_authz: {seen}; {page.complaints}")
    assert [status for status, *_ in seen] == [200] * LIMIT + NETWORK_ERROR
    assert any("blocked by CORS policy" in complaint for complaint in page.complaints)


@COUNTED
async def test_without_the_filter_everything_is_a_network_error(scene: Scene, page: Browser) -> None:
    """The preflight is allowed, and answered by an application that knows nothing of it."""
    assert await run(page, FETCH, scene.plain, LIMITED, a_session()) == NETWORK_ERROR
    assert any("blocked by CORS policy" in complaint for complaint in page.complaints)


@BOTH
async def test_preflights_are_counted_where_they_reach_us(
    scene: Scene, page: Browser, request: pytest.FixtureRequest
) -> None:
    """Behind our filter one fetch is two requests, or one if that is configured; before it never two."""
    counts = request.node.callspec.params["scene"]
    before = await run(page, FETCH, scene.before, "/count/before", a_session())
    behind = await run(page, FETCH, scene.behind, "/count/behind", a_session())
    print(f"\nremaining of 10 after one fetch: {before[2]} before, {behind[2]} behind (counted: {counts})")
    assert (before[2], behind[2]) == ("9", "8" if counts else "9")
