"""Counters: what they say, who uses most, and how to begin them anew."""

from dataclasses import asdict

from aiohttp import web

from sidecar.application.clients import ClientDirectory
from sidecar.application.known_clients import rule_of
from sidecar.application.ports import MAX_CURSOR
from sidecar.application.usage import CounterUsage
from sidecar.domain.ruleset import ALL_RULES
from sidecar.infrastructure.admin.access import BY
from sidecar.infrastructure.admin.answers import integer_query, json_answer
from sidecar.infrastructure.validation import Rejected, dump


class CounterRoutes:
    """Reads and resets the counters of a client."""

    def __init__(self, directory: ClientDirectory, usage: CounterUsage) -> None:
        self._directory = directory
        self._usage = usage

    async def read_state(self, request: web.Request) -> web.Response:
        client = self._directory.get(request.match_info["client_id"]).client
        counts = await self._usage.counts(client, request.query.get("identifier"))
        rules = [
            {
                **dump(rule),
                "current_count": in_use.count if in_use else None,
                "remaining": in_use.remaining if in_use else None,
            }
            for rule, in_use in zip(client.rules, counts, strict=True)
        ]
        return json_answer(200, {"client_id": client.id, "rules": rules})

    async def list_identifiers(self, request: web.Request) -> web.Response:
        client = self._directory.get(request.match_info["client_id"]).client
        rule = rule_of(client, request.match_info["policy_id"])
        cursor = integer_query(request, "cursor", 0, 0, MAX_CURSOR)
        following, page = await self._usage.identifiers(client, rule, cursor)
        body = {"identifiers": [asdict(one) for one in page], "next": str(following) if following else None}
        return json_answer(200, body)

    async def list_busiest(self, request: web.Request) -> web.Response:
        client = self._directory.get(request.match_info["client_id"]).client
        rule = rule_of(client, request.match_info["policy_id"])
        found = await self._usage.busiest(client, rule, integer_query(request, "limit", 10, 1, 100))
        return json_answer(200, asdict(found))

    async def reset(self, request: web.Request) -> web.Response:
        """One identifier's counters, or all of a policy, or all of the client."""
        client = self._directory.get(request.match_info["client_id"]).client
        policy, identifier = request.query.get("policy"), request.query.get("identifier")
        rules = [rule_of(client, policy)] if policy is not None else list(client.rules)
        if identifier == "":
            raise Rejected([(("identifier",), "expected an identifier, or none for all")])
        if identifier is None:
            await self._directory.reset(client.id, policy or ALL_RULES, request[BY])
            return json_answer(200, {"deleted": None})
        found = await self._usage.find(client, rules, identifier)
        # Before it is done, so that nothing is done that is not in the list.
        subject = f"{client.id}/{policy or ALL_RULES}/{found.shown}"
        await self._directory.note(request[BY], "counters.reset", subject)
        return json_answer(200, {"deleted": await self._usage.forget(found.checks)})
