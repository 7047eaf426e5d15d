"""The document is true: it has every route, and the sidecar answers each as it says (schemathesis asks)."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.infrastructure.admin.access import OPEN_PATHS, SHELL_PATHS, Access
from sidecar.infrastructure.admin.api import OpenRoutes, admin_runner, routes
from sidecar.infrastructure.admin.clients import ClientRoutes
from sidecar.infrastructure.admin.counters import CounterRoutes
from sidecar.infrastructure.admin.data_port import DATA_PORT
from sidecar.infrastructure.admin.docs import DocsRoutes
from sidecar.infrastructure.admin.explain import ExplainRoutes
from sidecar.infrastructure.admin.operations import OperationRoutes
from sidecar.infrastructure.admin.rate import RateRoutes
from sidecar.infrastructure.connection import Bound
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess, environment

KEYS = [
    {"name": "ops", "key": ADMIN, "role": "admin"},
    {"name": "watcher", "key": VIEWER, "role": "viewer"},
]
POLICY = {"id": "f", "route": "/shared", "identifier_type": "session_id", "limit": 5, "window_seconds": 3600}
CONFIG: dict[str, Any] = {
    "admin": {"keys": KEYS},
    "clients": [{"id": "in-file", "hosts": ["file.example"], "rules": [POLICY]}],
}
METHODS = {"get", "put", "post", "delete", "patch"}
DATA_PATHS = {operation.path for operation in DATA_PORT}
#: What else than 2xx may answer data that the document allows: it cannot say all that the domain checks. And
#: what else than 400 and 422 what it does not allow: a key, a path or an `If-Match` is looked at first. What
#: proxies ask is answered whatever the method, and a document has no word for that.
CHECKS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "409", "412", "422", "429"]
[checks.negative_data_rejection]
expected-statuses = ["400", "403", "404", "405", "409", "412", "422"]
[[operations]]
include-path-regex = "(nginx|forward-auth)$"
[operations.phases.coverage]
unexpected-methods = []
"""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """When it stops its log is looked through: nothing may have failed inside."""
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def document(sidecar: SidecarProcess) -> Any:
    reply = sidecar.admin("GET", "/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    return reply.json


def operations(document: Any) -> list[tuple[str, str]]:
    """Each as its method and path, those of the data port left out."""
    paths = {path: item for path, item in document["paths"].items() if path not in DATA_PATHS}
    return [(method.upper(), path) for path, item in paths.items() for method in item if method in METHODS]


def filled(path: str) -> str:
    """With something in the place of each parameter."""
    return re.sub(r"\{user_id\}", "7", re.sub(r"\{(client|policy)_id\}", "x", path)).replace(
        "{file}", "page.js"
    )


def checked(sidecar: SidecarProcess, directory: Path, *options: str) -> None:
    """Runs schemathesis with all of its checks, the same cases each time."""
    (directory / "checks.toml").write_text(CHECKS)
    place = f"http://127.0.0.1:{sidecar.admin_port}/openapi.json"
    program = [sys.executable, "-W", "ignore", "-m", "schemathesis.cli", "--config-file", "checks.toml"]
    always = ["--header", f"X-Admin-Key: {ADMIN}", "--checks", "all", "--seed", "1", "--continue-on-failure"]
    command = [*program, "run", place, *always, "--no-color", *options]
    ran = subprocess.run(
        command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=150, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = ran.stdout[ran.stdout.index(" SUMMARY ") :]
    assert re.search(r"\d{2,} generated, \d{2,} passed", summary), ran.stdout
    print(summary)


def test_the_admin_port_answers_as_the_document_says(sidecar: SidecarProcess, tmp_path: Path) -> None:
    """Statuses, headers, types and schemas of answers, wrong data refused, keys needed, nothing of 5xx."""
    here = f"http://127.0.0.1:{sidecar.admin_port}"
    checked(sidecar, tmp_path, "--url", here, "--exclude-tag", "data port", "--max-examples", "20")


def test_the_data_port_answers_as_the_document_says(sidecar: SidecarProcess, tmp_path: Path) -> None:
    """As far as the document describes it."""
    here = f"http://127.0.0.1:{sidecar.port}"
    phases = "examples,coverage,fuzzing"  # nothing is made there that could be used again
    options = ["--include-tag", "data port", "--max-examples", "20", "--phases", phases]
    checked(sidecar, tmp_path, "--url", here, *options)


def test_the_document_has_every_route_of_the_router_and_no_other(document: Any) -> None:
    """HEAD comes with GET; what takes everything else is no route of its own."""
    none: Any = None
    served = routes(
        OpenRoutes(none, none),
        ClientRoutes(none),
        CounterRoutes(none, none),
        OperationRoutes(none, none, none),
        ExplainRoutes(none, none, none),
        RateRoutes(none, none),
    )
    routed = {
        (route.method, route.resource.canonical)
        for route in admin_runner(served, Access(), Bound()).app.router.routes()
        if route.resource and route.method not in ("HEAD", "*")
    }
    assert set(operations(document)) == routed


def test_each_path_takes_the_methods_of_the_document(sidecar: SidecarProcess, document: Any) -> None:
    """As `Allow` names them, and HEAD where there is GET."""
    for path in {path for _, path in operations(document)}:
        described = {method for method, other in operations(document) if other == path}
        described |= {"HEAD"} if "GET" in described else set()
        reply = sidecar.admin("PROPFIND", filled(path))
        assert (reply.status, set(reply.headers["allow"].split(", "))) == (405, described), path


def test_each_operation_asks_for_a_key_as_the_document_says(sidecar: SidecarProcess, document: Any) -> None:
    """None or a wrong one: 403; a viewer's: 403 where something would be changed."""
    for method, path in operations(document):
        described = document["paths"][path][method.lower()]
        open_ = path in OPEN_PATHS or filled(path) in SHELL_PATHS
        assert (described.get("security") == []) is open_, path
        for key in (None, "wrong-key"):
            reply = sidecar.admin(method, filled(path), key=key)
            assert (reply.status == 403) is not open_, (method, path, key)
        reads = open_ or method == "GET" or path == "/v1/explain"
        assert (sidecar.admin(method, filled(path), key=VIEWER).status == 403) is not reads, (method, path)


def test_every_reference_of_the_document_leads_somewhere(document: Any) -> None:
    """And every part of it is used."""
    written = json.dumps(document)
    for reference in set(re.findall(r'"\$ref": "#/([^"]*)"', written)):
        place: Any = document
        for name in reference.split("/"):
            place = place[name]
    for kind in ("schemas", "responses", "headers"):
        for name in document["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in written, name


def test_the_document_has_the_fields_of_the_api_document(document: Any) -> None:
    """A client and a policy, as they were promised; more may follow."""
    schemas = document["components"]["schemas"]
    assert {"id", "name", "created_at", "rules"} <= set(schemas["Client"]["required"])
    promised = {"id", "route", "method", "identifier_type", "algorithm", "limit", "window_seconds", "burst"}
    assert promised <= set(schemas["Policy"]["required"])
    assert promised | {"current_count"} <= set(schemas["CountedPolicy"]["required"])


async def test_without_its_extra_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 404 with the command."""
    monkeypatch.setattr("sidecar.infrastructure.admin.docs.find_spec", lambda name: None)
    none: Any = None
    answer = await DocsRoutes().page(none)
    assert (answer.status, answer.content_type) == (404, "application/problem+json")
    assert isinstance(answer.body, bytes)
    assert "pip install ratelimit-sidecar[docs]" in json.loads(answer.body)["detail"]
