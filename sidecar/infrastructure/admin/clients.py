"""Clients and their policies. What is changed here is kept in the store and stands above the files."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from sidecar.application.clients import ANY, ClientDirectory
from sidecar.application.known_clients import ChangedMeanwhile, Conflict, KnownClient, rule_of
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.admin.access import BY
from sidecar.infrastructure.admin.answers import integer_query, json_answer, json_object, merged
from sidecar.infrastructure.validation import Rejected, body_reader, dump

_read_client = body_reader(Client)
_read_rule = body_reader(Rule)
MAX_PAGE = 1000
T = TypeVar("T")


class ClientRoutes:
    """Lists, reads, makes, replaces, changes and deletes clients and policies."""

    def __init__(self, directory: ClientDirectory) -> None:
        self._directory = directory

    async def list_clients(self, request: web.Request) -> web.Response:
        ids = self._directory.ids
        page, following = _page(request, ids, ids)
        shown = [_client(self._directory.get(client_id)) for client_id in page]
        return json_answer(200, {"clients": shown, "next": following})

    async def create_client(self, request: web.Request) -> web.Response:
        client = await _thorough(_read_client, json_object(await request.read()))
        created = await self._directory.create(client, request[BY])
        return _with_etag(201, created, Location=f"/v1/clients/{created.client.id}")

    async def read_client(self, request: web.Request) -> web.Response:
        return _with_etag(200, self._directory.get(request.match_info["client_id"]))

    async def replace_client(self, request: web.Request) -> web.Response:
        body = _same_id(json_object(await request.read()), request.match_info["client_id"])
        client = await _thorough(_read_client, _writable(body))
        if request.headers.get("If-None-Match", "").strip() == ANY:
            return _with_etag(201, await self._made_anew(client, request[BY]))
        return _with_etag(200, await self._directory.put(client, _if_match(request), request[BY]))

    async def _made_anew(self, client: Client, by: str) -> KnownClient:
        try:
            return await self._directory.create(client, by)
        except Conflict as error:
            raise ChangedMeanwhile(str(error)) from error

    async def change_client(self, request: web.Request) -> web.Response:
        client_id = request.match_info["client_id"]
        patch = _writable(_same_id(json_object(await request.read()), client_id))

        def change(client: Client) -> Client:
            return _read_client(json.dumps(merged(dump(client), patch)).encode())

        changed = await self._directory.change(client_id, change, _if_match(request), request[BY])
        return _with_etag(200, changed)

    async def delete_client(self, request: web.Request) -> web.Response:
        await self._directory.delete(request.match_info["client_id"], _if_match(request), request[BY])
        return web.Response(status=204)

    async def list_policies(self, request: web.Request) -> web.Response:
        known = self._directory.get(request.match_info["client_id"])
        rules = known.client.rules
        page, following = _page(request, [rule.id for rule in rules], list(rules))
        body = {"policies": [dump(rule) for rule in page], "next": following}
        return json_answer(200, body, ETag=f'"{known.etag}"')

    async def create_policy(self, request: web.Request) -> web.Response:
        client_id, rule = request.match_info["client_id"], _read_rule(await request.read())
        added = await self._directory.add_rule(client_id, rule, _if_match(request), request[BY])
        return json_answer(201, dump(added), Location=f"/v1/clients/{client_id}/policies/{added.id}")

    async def read_policy(self, request: web.Request) -> web.Response:
        known = self._directory.get(request.match_info["client_id"])
        rule = rule_of(known.client, request.match_info["policy_id"])
        return json_answer(200, dump(rule), ETag=f'"{known.etag}"')

    async def replace_policy(self, request: web.Request) -> web.Response:
        policy_id = request.match_info["policy_id"]
        body = _same_id(json_object(await request.read()), policy_id)
        rule = _read_rule(json.dumps(body).encode())
        return await self._changed_policy(request, lambda old: rule)

    async def change_policy(self, request: web.Request) -> web.Response:
        patch = _same_id(json_object(await request.read()), request.match_info["policy_id"])
        return await self._changed_policy(
            request, lambda old: _read_rule(json.dumps(merged(dump(old), patch)).encode())
        )

    async def delete_policy(self, request: web.Request) -> web.Response:
        client_id, policy_id = request.match_info["client_id"], request.match_info["policy_id"]
        await self._directory.delete_rule(client_id, policy_id, _if_match(request), request[BY])
        return web.Response(status=204)

    async def _changed_policy(self, request: web.Request, change: Callable[[Rule], Rule]) -> web.Response:
        changed = await self._directory.change_rule(
            request.match_info["client_id"],
            request.match_info["policy_id"],
            change,
            _if_match(request),
            request[BY],
        )
        return json_answer(200, dump(changed))


def _page(request: web.Request, ids: list[str], values: list[T]) -> tuple[list[T], str | None]:
    """The values after the id `?after=`, at most `?limit=`, and the id to go on after."""
    limit = integer_query(request, "limit", 100, 1, MAX_PAGE)
    after = request.query.get("after")
    start = ids.index(after) + 1 if after in ids else sum(each <= after for each in ids) if after else 0
    page = values[start : start + limit]
    return page, ids[start + limit - 1] if start + limit < len(ids) else None


def _if_match(request: web.Request) -> frozenset[str] | None:
    """The states that the caller would change (RFC 9110 section 13.1.1); a weak tag never matches."""
    if "If-Match" not in request.headers:
        return None
    tags = (tag.strip() for tag in ",".join(request.headers.getall("If-Match")).split(","))
    return frozenset(tag.strip('"') for tag in tags if not tag.startswith("W/"))


def _writable(body: dict[str, Any]) -> dict[str, Any]:
    """Without what is only read, so that what was read may be sent back."""
    return {name: value for name, value in body.items() if name not in ("created_at", "source")}


async def _thorough(read: Callable[[bytes], Client], body: dict[str, Any]) -> Client:
    """In a thread: a client may have thousands of rules, and decisions are to go on."""
    return await asyncio.to_thread(read, json.dumps(body).encode())


def _same_id(body: dict[str, Any], path_id: str) -> dict[str, Any]:
    if body.setdefault("id", path_id) != path_id:
        raise Rejected([(("id",), f"expected {path_id!r}, as in the path, or nothing")])
    return body


def _client(known: KnownClient) -> dict[str, Any]:
    created_at = known.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**dump(known.client), "created_at": created_at, "source": known.source}


def _with_etag(status: int, known: KnownClient, **headers: str) -> web.Response:
    return json_answer(status, _client(known), ETag=f'"{known.etag}"', **headers)
