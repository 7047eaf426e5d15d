"""`DELETE /rate/reset/{userId}`: what a user has used, begun anew."""

from urllib.parse import parse_qs

from aiohttp import web

from sidecar.application.clients import ClientDirectory
from sidecar.application.known_clients import NotFound
from sidecar.application.user_rates import UserRates, one_endpoint, user_number
from sidecar.infrastructure.admin.access import BY
from sidecar.infrastructure.admin.answers import json_answer


class RateRoutes:
    """Resets the counters of the per-user, per-endpoint API; the directory keeps the audit list."""

    def __init__(self, rates: UserRates, directory: ClientDirectory) -> None:
        self._rates = rates
        self._directory = directory

    async def reset(self, request: web.Request) -> web.Response:
        """One endpoint of the user, or all; the answer says how many requests were forgotten."""
        user = user_number(request.match_info["user_id"])
        if user is None:
            raise NotFound("there is no such user: expected a positive whole number, in ASCII digits")
        endpoint = _endpoint(request)
        subject = f"/rate/{user}" if endpoint is None else f"/rate/{user}/{endpoint}"
        # Before it is done: what was forgotten until the store went away is in the list, too.
        await self._directory.note(request[BY], "counters.reset", subject)
        return json_answer(200, {"deleted": await self._rates.reset(user, endpoint)})


def _endpoint(request: web.Request) -> str | None:
    # Not `request.query`: it takes all that is no UTF-8 for one character.
    query = request.rel_url.raw_query_string
    given = parse_qs(query, keep_blank_values=True, errors="surrogateescape")
    return one_endpoint(given["endpoint"]) if "endpoint" in given else None
