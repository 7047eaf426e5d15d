"""The admin port: what is served at which path, and by whom it may be asked."""

from collections.abc import Callable, Sequence

from aiohttp import web

from sidecar.application.readiness import Readiness
from sidecar.infrastructure.admin.access import Access, guard, only_reads
from sidecar.infrastructure.admin.answers import as_problems, json_answer
from sidecar.infrastructure.admin.clients import ClientRoutes
from sidecar.infrastructure.admin.counters import CounterRoutes
from sidecar.infrastructure.admin.explain import ExplainRoutes
from sidecar.infrastructure.admin.operations import OperationRoutes
from sidecar.infrastructure.admin.rate import RateRoutes

#: How long an accepted request may take after the sidecar was told to stop.
DRAIN_SECONDS = 5.0


class OpenRoutes:
    """What probes and Prometheus read without a key."""

    def __init__(self, readiness: Readiness, metrics: Callable[[], tuple[str, bytes]]) -> None:
        self._readiness = readiness
        self._metrics = metrics

    async def health(self, request: web.Request) -> web.Response:
        return json_answer(200, {"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response(status=self._readiness.status, text=self._readiness.word)

    async def metrics(self, request: web.Request) -> web.Response:
        content_type, body = self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})


def routes(
    open_: OpenRoutes,
    clients: ClientRoutes,
    counters: CounterRoutes,
    operations: OperationRoutes,
    explaining: ExplainRoutes,
    rates: RateRoutes,
) -> list[web.RouteDef]:
    client, policy = "/v1/clients/{client_id}", "/v1/clients/{client_id}/policies/{policy_id}"
    return [
        web.get("/health", open_.health),
        web.get("/ready", open_.ready),
        web.get("/metrics", open_.metrics),
        web.get("/v1/clients", clients.list_clients),
        web.post("/v1/clients", clients.create_client),
        web.get(client, clients.read_client),
        web.put(client, clients.replace_client),
        web.patch(client, clients.change_client),
        web.delete(client, clients.delete_client),
        web.get(f"{client}/policies", clients.list_policies),
        web.post(f"{client}/policies", clients.create_policy),
        web.get(policy, clients.read_policy),
        web.put(policy, clients.replace_policy),
        web.patch(policy, clients.change_policy),
        web.delete(policy, clients.delete_policy),
        web.get(f"{client}/state", counters.read_state),
        web.get(f"{policy}/identifiers", counters.list_identifiers),
        web.get(f"{policy}/busiest", counters.list_busiest),
        web.delete(f"{client}/counters", counters.reset),
        web.get("/v1/enforcement", operations.read_enforcement),
        web.put("/v1/enforcement", operations.set_enforcement),
        web.delete("/v1/enforcement", operations.reset_enforcement),
        web.post("/v1/explain", only_reads(explaining.explain)),
        web.get("/v1/config", operations.read_configuration),
        web.post("/v1/reload", operations.reload),
        web.get("/v1/audit", operations.read_audit),
        web.delete("/rate/reset/{user_id}", rates.reset),
    ]


def admin_runner(served: Sequence[web.RouteDef], access: Access) -> web.AppRunner:
    application = web.Application(middlewares=[as_problems, guard(access)])
    application.add_routes(served)
    application.on_response_prepare.append(_name_server)
    return web.AppRunner(application, access_log=None, shutdown_timeout=DRAIN_SECONDS)


async def _name_server(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "sidecar"
