"""The admin API: clients, their policies, their counters. What it changes is kept in the store."""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.application.clients import ClientDirectory, Conflict, KnownClient, NotFound
from sidecar.application.ports import StoreUnavailable
from sidecar.application.readiness import Readiness
from sidecar.application.usage import CounterUsage
from sidecar.domain.errors import InvalidValue
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.admin.access import AdminKey, guard
from sidecar.infrastructure.problem import CONTENT_TYPE, invalid_fields, problem
from sidecar.infrastructure.validation import Malformed, Rejected, body_reader, dump

#: How long an accepted request may take after the sidecar was told to stop.
DRAIN_SECONDS = 5.0
_log = logging.getLogger("sidecar.admin")
_read_client = body_reader(Client)
_read_rule = body_reader(Rule)


class AdminApi:
    """The routes of the admin port, as the seed's section 6 describes them."""

    def __init__(
        self,
        directory: ClientDirectory,
        usage: CounterUsage,
        readiness: Readiness,
        metrics: Callable[[], tuple[str, bytes]],
    ) -> None:
        self._directory = directory
        self._usage = usage
        self._readiness = readiness
        self._metrics = metrics

    def routes(self) -> list[web.RouteDef]:
        client = "/v1/clients/{client_id}"
        return [
            web.get("/health", self.health),
            web.get("/ready", self.ready),
            web.get("/metrics", self.metrics),
            web.post("/v1/clients", self.create_client),
            web.get(client, self.read_client),
            web.delete(client, self.delete_client),
            web.post(f"{client}/policies", self.create_policy),
            web.delete(f"{client}/policies/{{policy_id}}", self.delete_policy),
            web.get(f"{client}/state", self.read_state),
        ]

    async def health(self, request: web.Request) -> web.Response:
        return _json(200, {"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response(status=self._readiness.status, text=self._readiness.word)

    async def metrics(self, request: web.Request) -> web.Response:
        content_type, body = self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def create_client(self, request: web.Request) -> web.Response:
        created = await self._directory.create(_read_client(await request.read()))
        return _json(201, _client(created), Location=f"/v1/clients/{created.client.id}")

    async def read_client(self, request: web.Request) -> web.Response:
        return _json(200, _client(self._directory.get(request.match_info["client_id"])))

    async def delete_client(self, request: web.Request) -> web.Response:
        await self._directory.delete(request.match_info["client_id"])
        return web.Response(status=204)

    async def create_policy(self, request: web.Request) -> web.Response:
        rule = _read_rule(await request.read())
        return _json(201, dump(await self._directory.add_rule(request.match_info["client_id"], rule)))

    async def delete_policy(self, request: web.Request) -> web.Response:
        await self._directory.delete_rule(request.match_info["client_id"], request.match_info["policy_id"])
        return web.Response(status=204)

    async def read_state(self, request: web.Request) -> web.Response:
        client = self._directory.get(request.match_info["client_id"]).client
        counts = await self._usage.counts(client, request.query.get("identifier"))
        rules = [
            {**dump(rule), "current_count": count} for rule, count in zip(client.rules, counts, strict=True)
        ]
        return _json(200, {"client_id": client.id, "rules": rules})


def admin_runner(api: AdminApi, keys: Sequence[AdminKey]) -> web.AppRunner:
    application = web.Application(middlewares=[as_problems, guard(keys)])
    application.add_routes(api.routes())
    application.on_response_prepare.append(_name_server)
    return web.AppRunner(application, access_log=None, shutdown_timeout=DRAIN_SECONDS)


async def _name_server(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "sidecar"


@web.middleware
async def as_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns what went wrong into problem+json; nothing was changed then."""
    try:
        return await handler(request)
    except Malformed as error:
        return _problem(400, str(error))
    except Rejected as error:
        return _invalid(error.problems)
    except InvalidValue as error:
        return _invalid(error.problems)
    except NotFound as error:
        return _problem(404, str(error))
    except Conflict as error:
        return _problem(409, str(error))
    except StoreUnavailable as error:
        _log.warning("the store is away", extra={"error": str(error)})
        return _problem(503, "the store is away; whether the change was made is said by it when it returns")
    except web.HTTPException as error:
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return _problem(error.status, error.reason, **allow)
    except Exception:
        _log.exception("an admin request failed")
        return _problem(500, "the sidecar failed on this request; its log says how")


def _client(known: KnownClient) -> dict[str, Any]:
    created_at = known.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**dump(known.client), "created_at": created_at, "source": known.source}


def _json(status: int, body: dict[str, Any], **headers: str) -> web.Response:
    headers["Content-Type"] = "application/json"
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers)


def _problem(status: int, detail: str, **headers: str) -> web.Response:
    return web.Response(
        status=status, body=problem(status, detail), headers={"Content-Type": CONTENT_TYPE, **headers}
    )


def _invalid(problems: Any) -> web.Response:
    return web.Response(status=422, body=invalid_fields(problems), headers={"Content-Type": CONTENT_TYPE})
