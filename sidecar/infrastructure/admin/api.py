"""The admin port: what is served at which path, as one table for router and document."""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from sidecar.application.ports import MAX_CURSOR
from sidecar.application.readiness import Readiness
from sidecar.application.usage import Busiest
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.admin import bodies
from sidecar.infrastructure.admin.access import DOCS_PATH, Access, guard
from sidecar.infrastructure.admin.answers import as_problems, json_answer
from sidecar.infrastructure.admin.clients import MAX_PAGE, ClientRoutes
from sidecar.infrastructure.admin.counters import CounterRoutes
from sidecar.infrastructure.admin.data_port import DATA_PORT
from sidecar.infrastructure.admin.docs import DocsRoutes
from sidecar.infrastructure.admin.explain import ExplainRoutes
from sidecar.infrastructure.admin.fallback import (
    Everything,
    Runner,
    bodies_come,
    expect_later,
    expectations,
)
from sidecar.infrastructure.admin.openapi import document
from sidecar.infrastructure.admin.operations import OperationRoutes
from sidecar.infrastructure.admin.rate import RateRoutes
from sidecar.infrastructure.admin.table import Body, Operation, Parameter, Reply, Schema, Tag
from sidecar.infrastructure.connection import Bound
from sidecar.infrastructure.described import DescribedBody

#: How long an accepted request may take after the sidecar was told to stop.
DRAIN_SECONDS = 5.0


class OpenRoutes:
    """What probes and Prometheus read without a key."""

    def __init__(self, readiness: Readiness, metrics: Callable[[], tuple[str, bytes]]) -> None:
        self._readiness = readiness
        self._metrics = metrics
        self._one_page = asyncio.Lock()

    async def health(self, request: web.Request) -> web.Response:
        return json_answer(200, {"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response(status=self._readiness.status, text=self._readiness.word)

    async def metrics(self, request: web.Request) -> web.Response:
        async with self._one_page:
            # In a thread: thousands of rules are thousands of lines, and decisions are to go on.
            content_type, body = await asyncio.to_thread(self._metrics)
        return web.Response(body=body, headers={"Content-Type": content_type})


CLIENT, POLICY = "/v1/clients/{client_id}", "/v1/clients/{client_id}/policies/{policy_id}"


def _integer(least: int, most: int, default: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


_IF_MATCH = Parameter(
    "If-Match",
    {"type": "string", "pattern": '^(\\*|"[0-9a-f]{32}")$'},
    "The `ETag` that was seen; left out or `*`: any.",
    where="header",
)
_PAGE = (
    Parameter("limit", _integer(1, MAX_PAGE, 100), "At most this many."),
    Parameter("after", {"type": "string"}, "The id to go on after: `next` of the page before."),
)
_AUDIT_PAGE = (
    Parameter("skip", _integer(0, 1000, 0), "Leaves out this many of the newest."),
    Parameter("limit", _integer(1, 1000, 100), "At most this many."),
)
_CURSOR = Parameter("cursor", _integer(0, MAX_CURSOR, 0), "`next` of the page before.")
_MOST = Parameter("limit", _integer(1, 100, 10), "How many.")
_COUNT_FOR = Parameter(
    "identifier", {"type": "string"}, "Whose counts; a combined key's parts joined by `|`."
)
_RESET = (
    Parameter("policy", {"type": "string"}, "Of one policy only."),
    Parameter(
        "identifier", {"type": "string", "minLength": 1}, "Of one identifier only, as `state` takes it."
    ),
)
_USER_ENDPOINT = Parameter(
    "endpoint", {"type": "string", "minLength": 1, "maxLength": 128}, "Of one endpoint only."
)


def routes(  # noqa: PLR0913, PLR0917 - one for each part of the port
    open_: OpenRoutes,
    clients: ClientRoutes,
    counters: CounterRoutes,
    operations: OperationRoutes,
    explaining: ExplainRoutes,
    rates: RateRoutes,
) -> list[Operation]:
    return [
        *_probes(open_),
        *_clients(clients),
        *_policies(clients),
        *_counters(counters, rates),
        *_operations(operations, explaining),
    ]


def _probes(open_: OpenRoutes) -> list[Operation]:
    health, ready, metrics = open_.health, open_.ready, open_.metrics
    said = {200: Reply("`ready`, or `degraded` while the store is away.", None, "text/plain")}
    said[503] = Reply("`unavailable`: starting or stopping.", None, "text/plain")
    page = {200: Reply("In Prometheus's text format.", None, "text/plain")}
    lives = {200: Reply("It does.", bodies.Health)}
    return [
        Operation("GET", "/health", health, Tag.OPEN, "Whether the process lives", lives),
        Operation("GET", "/ready", ready, Tag.OPEN, "Whether it is to be sent requests", said),
        Operation("GET", "/metrics", metrics, Tag.OPEN, "Metrics", page),
    ]


def _clients(of: ClientRoutes) -> list[Operation]:
    tag, whole, patch = Tag.CLIENTS, Body(kind=Client), Body(kind=Client, form="patch")
    page = {200: Reply("A page, by id.", bodies.ClientPage)}
    made = {201: Reply("Created.", bodies.ShownClient, headers=("ETag", "Location"))}
    shown = {200: Reply("As it is now.", bodies.ShownClient, headers=("ETag",))}
    gone = {204: Reply("Deleted; of an override, the file's version is back.")}
    match = (_IF_MATCH,)
    return [
        Operation("GET", "/v1/clients", of.list_clients, tag, "List", page, (422,), None, _PAGE),
        Operation("POST", "/v1/clients", of.create_client, tag, "Create", made, (409, 422, 503), whole),
        Operation("GET", CLIENT, of.read_client, tag, "Read", shown, (404, 503)),
        Operation(
            "PUT",
            CLIENT,
            of.replace_client,
            tag,
            "Replace, or create",
            shown,
            (409, 412, 422, 503),
            Body(kind=Client, form="named"),
            match,
        ),
        Operation(
            "PATCH", CLIENT, of.change_client, tag, "Change", shown, (404, 409, 412, 422, 503), patch, match
        ),
        Operation("DELETE", CLIENT, of.delete_client, tag, "Delete", gone, (404, 409, 412, 503), None, match),
    ]


def _policies(of: ClientRoutes) -> list[Operation]:
    tag, whole, patch = Tag.POLICIES, Body(kind=Rule), Body(kind=Rule, form="patch")
    path, match, errors = f"{CLIENT}/policies", (_IF_MATCH,), (404, 409, 412, 422, 503)
    page = {200: Reply("A page, in their order.", bodies.PolicyPage, headers=("ETag",))}
    made = {201: Reply("Created.", Rule, headers=("Location",))}
    read = {200: Reply("As it is now; the ETag is its client's.", Rule, headers=("ETag",))}
    changed = {200: Reply("As it is now.", Rule)}
    gone = {204: Reply("Deleted.")}
    return [
        Operation("GET", path, of.list_policies, tag, "List", page, (404, 422, 503), None, _PAGE),
        Operation("POST", path, of.create_policy, tag, "Create", made, errors, whole, match),
        Operation("GET", POLICY, of.read_policy, tag, "Read", read, (404, 503)),
        Operation("PUT", POLICY, of.replace_policy, tag, "Replace", changed, errors, whole, match),
        Operation("PATCH", POLICY, of.change_policy, tag, "Change", changed, errors, patch, match),
        Operation("DELETE", POLICY, of.delete_policy, tag, "Delete", gone, (404, 409, 412, 503), None, match),
    ]


def _counters(of: CounterRoutes, rates: RateRoutes) -> list[Operation]:
    tag, found = Tag.COUNTERS, (404, 503)
    state = {200: Reply("Every policy with its count.", bodies.State)}
    page = {200: Reply("Some of them.", bodies.IdentifierPage)}
    busiest = {200: Reply("The busiest first.", Busiest)}
    reset = {200: Reply("Counting begins anew.", bodies.Reset)}
    deleted = {200: Reply("How many requests were forgotten.", bodies.Deleted)}
    identifiers = f"{POLICY}/identifiers"
    return [
        Operation(
            "GET", f"{CLIENT}/state", of.read_state, tag, "What counts now", state, found, None, (_COUNT_FOR,)
        ),
        Operation(
            "GET",
            identifiers,
            of.list_identifiers,
            tag,
            "Who is counted",
            page,
            (404, 422, 503),
            None,
            (_CURSOR,),
        ),
        Operation(
            "GET",
            f"{POLICY}/busiest",
            of.list_busiest,
            tag,
            "Who uses most",
            busiest,
            (404, 422, 503),
            None,
            (_MOST,),
        ),
        Operation(
            "DELETE", f"{CLIENT}/counters", of.reset, tag, "Begin anew", reset, (404, 422, 503), None, _RESET
        ),
        Operation(
            "DELETE",
            "/rate/reset/{user_id}",
            rates.reset,
            tag,
            "Forget what a user of /rate/check has used",
            deleted,
            (404, 422, 503),
            None,
            (_USER_ENDPOINT,),
        ),
    ]


def _operations(of: OperationRoutes, explaining: ExplainRoutes) -> list[Operation]:
    tag, path, body = Tag.OPERATIONS, "/v1/enforcement", Body(kind=bodies.EnforcementBody)
    switch = {200: Reply("What is in force.", bodies.ShownEnforcement)}
    explained = {200: Reply("Why it is answered so; nothing was counted.", bodies.Explanation)}
    configuration = {200: Reply("What is in force.", bodies.ShownConfiguration)}
    audit = {200: Reply("The newest first.", bodies.Audit)}
    back = {204: Reply("The file's is in force again.")}
    described = Body(kind=DescribedBody)
    return [
        Operation("GET", path, of.read_enforcement, tag, "Whether anybody is refused", switch),
        Operation(
            "PUT", path, of.set_enforcement, tag, "Switch it, above the file", switch, (422, 503), body
        ),
        Operation("DELETE", path, of.reset_enforcement, tag, "Give it back to the file", back, (503,)),
        Operation(
            "POST",
            "/v1/explain",
            explaining.explain,
            tag,
            "Explain how a request is decided",
            explained,
            (422,),
            described,
            only_reads=True,
        ),
        Operation("GET", "/v1/config", of.read_configuration, tag, "The configuration", configuration),
        Operation("POST", "/v1/reload", of.reload, tag, "Read the files again", configuration, (422,)),
        Operation(
            "GET", "/v1/audit", of.read_audit, tag, "Who changed what", audit, (422, 503), None, _AUDIT_PAGE
        ),
    ]


def _pages(of: DocsRoutes) -> list[Operation]:
    tag = Tag.DOCUMENT
    json_ = {200: Reply("It.", None, "application/json")}
    page = {200: Reply("It asks for a key and shows the document.", None, "text/html")}
    file = {200: Reply("Of this package or of Swagger UI's.", None, "*/*")}
    return [
        Operation("GET", "/openapi.json", of.document, tag, "This document", json_),
        Operation("GET", DOCS_PATH, of.page, tag, "This document as a page", page, (403, 404)),
        Operation("GET", f"{DOCS_PATH}/{{file}}", of.file, tag, "A file of the page", file, (403, 404)),
    ]


def admin_runner(served: Sequence[Operation], access: Access, bound: Bound) -> web.AppRunner:
    docs = DocsRoutes()
    everything = [*served, *_pages(docs)]
    docs.describe(document([*everything, *DATA_PORT]))
    application = web.Application(middlewares=[as_problems, guard(access), expectations, bodies_come])
    application.add_routes([operation.route(expect_later) for operation in everything])
    application.router.register_resource(Everything())
    application.on_response_prepare.append(_complete)
    return Runner(application, bound, access_log=None, shutdown_timeout=DRAIN_SECONDS)


async def _complete(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "sidecar"
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
