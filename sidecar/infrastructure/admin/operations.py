"""What operators switch, read again and look up: enforcement, the configuration, who changed what."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from sidecar.application.clients import ClientDirectory
from sidecar.domain.rule import Enforcement
from sidecar.infrastructure.admin.access import BY
from sidecar.infrastructure.admin.answers import integer_query, json_answer, json_object
from sidecar.infrastructure.validation import Rejected


class OperationRoutes:
    """The global switch, the configuration and the audit list.

    `configuration` gives the effective one with its secrets masked; `reload` reads the files again and gives
    what was taken over, or raises `Rejected` with what is wrong with them.
    """

    def __init__(
        self,
        directory: ClientDirectory,
        configuration: Callable[[], dict[str, Any]],
        reload: Callable[[], Awaitable[dict[str, Any]]],
    ) -> None:
        self._directory = directory
        self._configuration = configuration
        self._reload = reload

    async def read_enforcement(self, request: web.Request) -> web.Response:
        return self._enforcement()

    async def set_enforcement(self, request: web.Request) -> web.Response:
        written = json_object(await request.read())
        if written.get("enforcement") not in list(Enforcement):
            raise Rejected([(("enforcement",), "expected on, shadow or off")])
        if unknown := written.keys() - {"enforcement"}:
            raise Rejected([((name,), "unknown key") for name in sorted(unknown)])
        await self._directory.enforce(Enforcement(written["enforcement"]), request[BY])
        return self._enforcement()

    async def reset_enforcement(self, request: web.Request) -> web.Response:
        await self._directory.enforce(None, request[BY])
        return web.Response(status=204)

    async def read_configuration(self, request: web.Request) -> web.Response:
        return json_answer(200, self._configuration())

    async def reload(self, request: web.Request) -> web.Response:
        return json_answer(200, await self._reload())

    async def read_audit(self, request: web.Request) -> web.Response:
        skip, limit = (
            integer_query(request, "skip", 0, 0, 1000),
            integer_query(request, "limit", 100, 1, 1000),
        )
        entries = await self._directory.audit(skip, limit)
        return json_answer(200, {"entries": [asdict(one) | {"at": one.at.isoformat()} for one in entries]})

    def _enforcement(self) -> web.Response:
        source = "api" if self._directory.enforcement_is_set else "file"
        return json_answer(200, {"enforcement": self._directory.enforcement, "source": source})
