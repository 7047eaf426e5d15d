"""Where in a request the edge finds who is calling; the same for all proxy dialects.

Only configured headers are looked at. What the header that counts does not say is unknown: falling back to
another one would let a caller choose which is believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.domain.identity import canonical_address, cookie_value
from sidecar.domain.request import Address, RequestMetadata, canonical_host
from sidecar.infrastructure.http.messages import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Lower-case header names; `None` where nothing is read."""

    #: Written by the proxy; without one, the `trusted_hops`-th entry of X-Forwarded-For from the right.
    address_header: str | None = "x-client-ip"
    trusted_hops: int = 1
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
            client_id=call.client_id or _header(headers, self.client_header),
            address=self._address(headers),
            session_id=self._session(headers),
            user_id=_header(headers, self.user_header),
            user_agent=headers.get("user-agent") or None,
            headers=headers,
            request_id=call.request_id,
        )

    def _address(self, headers: Mapping[str, str]) -> Address | None:
        if self.address_header:
            return canonical_address(headers.get(self.address_header, ""))
        hops = headers.get("x-forwarded-for", "").rsplit(",", self.trusted_hops)
        # Split once too often: what is left of the trusted hops was written by whoever wanted to.
        trusted = hops[-self.trusted_hops :]
        return canonical_address(trusted[0]) if len(trusted) == self.trusted_hops else None

    def _session(self, headers: Mapping[str, str]) -> str | None:
        if session := _header(headers, self.session_header):
            return session
        cookies = headers.get("cookie")
        return cookie_value(cookies, self.session_cookie) if cookies and self.session_cookie else None


def _header(headers: Mapping[str, str], name: str | None) -> str | None:
    return (headers.get(name) or None) if name else None
