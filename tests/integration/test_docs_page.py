"""`/docs` in a real browser: it shows the document, asks nobody but the sidecar, and keeps to its policy."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.parts import require, until
from tests.sidecar_process import ADMIN, SidecarProcess

METHODS = {"get", "put", "post", "delete", "patch"}
#: Types a credential and sends it.
TYPED = """
    document.getElementById("credential").value = {!r};
    document.querySelector("#access button").click();
"""
LIST_CLIENTS = "#operations-clients-get_v1_clients"


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    config = {"clients": [{"id": "in-file", "name": "Of the file"}]}
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), config) as running:
        yield running


@pytest.fixture
async def page(sidecar: SidecarProcess) -> AsyncIterator[Browser]:
    async with Browser(require("chromium")) as browser:
        await browser.send("Page.navigate", url=f"http://127.0.0.1:{sidecar.admin_port}/docs")
        await until(lambda: _has(browser, "#access button"), "the page")
        await until(lambda: browser.evaluate("'SwaggerUIBundle' in window"), "its scripts")
        yield browser


async def _has(browser: Browser, selector: str) -> bool:
    return bool(await browser.evaluate(f"document.querySelector({selector!r}) !== null"))


async def _click(browser: Browser, selector: str) -> None:
    await until(lambda: _has(browser, selector), selector)
    await browser.evaluate(f"document.querySelector({selector!r}).click()")


async def _text(browser: Browser, selector: str) -> str:
    return str(await browser.evaluate(f"(document.querySelector({selector!r}) || {{}}).textContent || ''"))


async def test_the_page_shows_every_operation_of_the_document(
    page: Browser, sidecar: SidecarProcess, tmp_path: Path
) -> None:
    """Once the key is typed in; all from the sidecar, and nothing that its policy has to stop."""
    paths = sidecar.admin("GET", "/openapi.json").json["paths"]
    described = sum(len(METHODS & item.keys()) for item in paths.values())

    async def all_there() -> bool:
        return bool(await page.evaluate("document.querySelectorAll('.opblock').length") == described)

    await page.evaluate(TYPED.format(ADMIN))
    await until(all_there, f"{described} operations")
    await page.screenshot(tmp_path / "docs.png")
    here = f"http://127.0.0.1:{sidecar.admin_port}/"
    assert [url for url in page.requests if not url.startswith((here, "data:image/"))] == []
    assert page.complaints == []


async def test_a_request_can_be_tried_out_with_the_key(page: Browser) -> None:
    """The key goes along in its header."""
    await page.evaluate(TYPED.format(ADMIN))
    for part in (".opblock-summary-control", ".try-out__btn", ".execute"):
        await _click(page, f"{LIST_CLIENTS} {part}")

    async def answered() -> bool:
        return "Of the file" in await _text(page, f"{LIST_CLIENTS} .live-responses-table")

    await until(answered, "the list of clients")
    assert page.complaints == []


async def test_a_wrong_key_is_told(page: Browser) -> None:
    """In the sidecar's own words, and nothing is shown."""
    await page.evaluate(TYPED.format("wrong-key"))

    async def told() -> bool:
        return "expected a valid key" in await _text(page, "#problem")

    await until(told, "what is wrong")
    assert not await _has(page, ".opblock")


async def test_the_policy_stops_what_goes_elsewhere(page: Browser) -> None:
    """Requests to another address and scripts in the page itself; the console says so."""
    await page.evaluate("fetch('http://127.0.0.1:9/').catch(() => null)")
    await page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'x = 1'}))"
    )

    async def stopped() -> bool:
        return sum("Content Security Policy" in complaint for complaint in page.complaints) >= 2

    await until(stopped, "two complaints")
    assert await page.evaluate("typeof x") == "undefined"


def test_the_page_names_no_other_host(sidecar: SidecarProcess) -> None:
    """Its own files have no absolute address; the policy keeps those of Swagger UI from being used."""
    reply = sidecar.admin("GET", "/docs", key=None)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in reply.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["x-frame-options"] == "DENY"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    files = re.findall(r'(?:src|href)="([^"]*)"', reply.body.decode())
    assert len(files) == 5
    for file in files:
        answer = sidecar.admin("GET", f"/{file}", key=None)
        assert (answer.status, answer.headers["x-content-type-options"]) == (200, "nosniff")
    for own in ("/docs", "/docs/page.js", "/docs/page.css"):
        assert b"//" not in re.sub(rb"(?m)^\s*//.*$", b"", sidecar.admin("GET", own, key=None).body)


@pytest.mark.parametrize(
    "path", ["/docs/", "/docs/docs.html", "/docs/../docs", "/docs/page.js/x", "/docs/%70age.js"]
)
def test_nothing_else_is_open(sidecar: SidecarProcess, path: str) -> None:
    """Only the page's own files, by their own addresses."""
    assert sidecar.admin("GET", path, key=None).status == 403


def test_without_any_key_the_page_is_closed_too(tmp_path: Path) -> None:
    """No key configured, no admin access: there is nothing that could be typed in."""
    with SidecarProcess(tmp_path, {"admin": {"keys": []}}) as closed:
        for path in ("/docs", "/docs/page.js", "/openapi.json"):
            reply = closed.admin("GET", path)
            assert (reply.status, reply.headers["content-type"]) == (403, "application/problem+json")
            assert "no admin key is configured" in reply.json["detail"]
