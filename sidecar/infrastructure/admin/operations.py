"""What operators switch, read again and look up: enforcement, the configuration, who changed what."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from sidecar.application.clients import ClientDirectory
from sidecar.application.ports import StoreUnavailable
from sidecar.domain.rule import Enforcement
from sidecar.infrastructure.admin.access import BY
from sidecar.infrastructure.admin.answers import integer_query, json_answer, json_object, long_answer
from sidecar.infrastructure.validation import Rejected

_log = logging.getLogger("sidecar.admin")


class OperationRoutes:
    """The global switch, the configuration and the audit list.

    `configuration` gives what is in force of the files, its secrets masked; `reload` reads the files again
    and gives the same of what was taken over, or raises `Rejected` with what is wrong with them.
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
        return await long_answer(200, lambda: self._effective(self._configuration()))

    async def reload(self, request: web.Request) -> web.Response:
        try:
            reloaded = await self._reload()
        except Rejected as error:
            await self._note_reload(request, f"refused: {_counted(len(error.located), 'problem')}")
            raise
        await self._note_reload(request, f"taken over: {_counted(len(reloaded['files']), 'file')}")
        return await long_answer(200, lambda: self._effective(reloaded))

    async def read_audit(self, request: web.Request) -> web.Response:
        skip, limit = (
            integer_query(request, "skip", 0, 0, 1000),
            integer_query(request, "limit", 100, 1, 1000),
        )
        entries = await self._directory.audit(skip, limit)
        return json_answer(200, {"entries": [asdict(one) | {"at": one.at.isoformat()} for one in entries]})

    async def _note_reload(self, request: web.Request, outcome: str) -> None:
        """Where the store is away, that is no reason to leave a mistake in force until it is back."""
        try:
            await self._directory.note(request[BY], "configuration.reload", outcome)
        except StoreUnavailable as error:
            told = {"by": request[BY], "outcome": outcome, "error": str(error)}
            _log.warning("a reload could not be noted in the audit list", extra=told)

    def _effective(self, files: dict[str, Any]) -> dict[str, Any]:
        """What is in force of the files, and what the API has put above them."""
        switch = self._switch()
        return {
            **files,
            "settings": files["settings"] | {"enforcement": switch["enforcement"]},
            "enforcement": switch,
            "clients": {
                known.client.id: {"source": known.source, "file": files["clients"].get(known.client.id)}
                for known in self._directory.all()
            },
        }

    def _enforcement(self) -> web.Response:
        return json_answer(200, self._switch())

    def _switch(self) -> dict[str, str]:
        source = "api" if self._directory.enforcement_is_set else "file"
        return {"enforcement": self._directory.enforcement, "source": source}


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
