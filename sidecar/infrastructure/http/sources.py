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
        return RequestMetadata(
            method=method,
            target=target,
            host=canonical_host(host),
            client_id=call.client_id or _one(headers, self.client_header),
            address=self.address.read(headers),
            session_id=self._session(headers),
            user_id=_one(headers, self.user_header),
            user_agent=headers.get("user-agent") or None,
            headers=headers,
            request_id=call.request_id,
        )

    def _session(self, headers: Mapping[str, str]) -> str | None:
        if self.session_header and headers.get(self.session_header):
            return _one(headers, self.session_header)
        cookies = headers.get("cookie")
        return cookie_value(cookies, self.session_cookie) if cookies and self.session_cookie else None


def _one(headers: Mapping[str, str], name: str | None) -> str | None:
    """`None` also where proxies joined several values by commas."""
    value = headers.get(name) if name else None
    return None if not value or "," in value else value
