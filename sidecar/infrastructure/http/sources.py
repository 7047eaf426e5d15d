"""Where in a request the edge finds who is calling; for all proxy dialects.

Only configured headers are looked at, and a header that came twice says nothing: each other second value
would be somebody new, while the application may read the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.domain.identity import cookie_value
from sidecar.domain.request import RequestMetadata, canonical_host
from sidecar.infrastructure.http.client_address import AddressSource
from sidecar.infrastructure.http.messages import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Lower-case header names; `None` where nothing is read."""

    address: AddressSource = field(default_factory=AddressSource)
    session_header: str | None = "x-session-id"
    session_cookie: str | None = "session_id"
    user_header: str | None = "x-user-id"
    client_header: str | None = None

    def request(self, call: Call, method: str, target: str, host: str) -> RequestMetadata:
        """The request that a proxy asks about, given what its dialect says of method, target and host."""
        headers = call.headers
        # By position: names would cost as much as all the rest.
        return RequestMetadata(
            method,
            target,
            canonical_host(host),
            call.client_id or (self.client_header and _one(headers.get(self.client_header))) or None,
            self.address.read(headers),
            True,  # has_address
            self._session(headers),
            _one(headers.get(self.user_header)) if self.user_header else None,
            headers.get("user-agent") or None,
            headers,
            1,  # cost
            call.request_id,
        )

    def _session(self, headers: Mapping[str, str]) -> str | None:
        if self.session_header and (value := headers.get(self.session_header)):
            return _one(value)
        if self.session_cookie and (cookies := headers.get("cookie")):
            return cookie_value(cookies, self.session_cookie)
        return None


def _one(value: str | None) -> str | None:
    """`None` also where proxies joined several values by commas."""
    return None if not value or "," in value else value
