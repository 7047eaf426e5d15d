"""`/openapi.json`, and `/docs`: a page that shows it, of this package and the extra `docs`, of no other host.

The page and its files hold nothing of the sidecar's, so they are served to whoever opens the address; what
they show, they ask for with the key that is typed in.
"""

import asyncio
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from aiohttp import web

from sidecar.infrastructure.admin.access import DOCS_PATH
from sidecar.infrastructure.admin.answers import problem_answer

_OWN = Path(__file__).with_name("pages")
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".png": "image/png"}
#: Swagger UI has its icons as `data:`; all else is in files.
_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
_MISSING = "the page needs an extra: pip install ratelimit-sidecar[docs]; /openapi.json is there without it"


class DocsRoutes:
    """`describe` gives it the document."""

    def __init__(self) -> None:
        self._document = b""
        self._files = _files()

    def describe(self, document: Mapping[str, object]) -> None:
        self._document = json.dumps(document).encode()

    async def document(self, request: web.Request) -> web.Response:
        return web.Response(body=self._document, headers={"Content-Type": "application/json"})

    async def page(self, request: web.Request) -> web.Response:
        return await self._file(DOCS_PATH)

    async def file(self, request: web.Request) -> web.Response:
        return await self._file(request.path)

    async def _file(self, path: str) -> web.Response:
        if self._files is None:
            return problem_answer(404, _MISSING)
        if (file := self._files.get(path)) is None:
            return problem_answer(404, "the page has no such file")
        content = await asyncio.to_thread(file.read_bytes)
        content_type = f"{_TYPES[file.suffix]}; charset=utf-8"
        return web.Response(body=content, headers={**_HEADERS, "Content-Type": content_type})


def _files() -> dict[str, Path] | None:
    """The file of each path; `None` without Swagger UI."""
    found = find_spec("swagger_ui")
    if found is None or found.origin is None:
        return None
    packaged = Path(found.origin).with_name("static")
    return {
        DOCS_PATH: _OWN / "docs.html",
        f"{DOCS_PATH}/page.js": _OWN / "docs.js",
        f"{DOCS_PATH}/page.css": _OWN / "docs.css",
        f"{DOCS_PATH}/swagger-ui-bundle.js": packaged / "swagger-ui-bundle.js",
        f"{DOCS_PATH}/swagger-ui.css": packaged / "swagger-ui.css",
        f"{DOCS_PATH}/favicon-32x32.png": packaged / "favicon-32x32.png",
    }
