"""Who is counted: identifier types, and how the value found becomes the identifier in a counter's key.

Identifiers are written so that no two different ones are ever the same text, and none is long:

| text | stands for |
|---|---|
| `=value` | the value itself (addresses too, whose colons cannot be mistaken) |
| `#sha256` | a value that is longer than 128 characters or has a separator or control character in it |
| `~ip=…`, `~shared` | what a missing identifier falls back on: a key space of its own |
| `=?` | callers whose address could not be read, together |
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sidecar.domain.address import address_identity, canonical_address
from sidecar.domain.request import Address, RequestMetadata

#: The one identifier of rules that count everyone together.
EVERYONE = "="
_MAX_LENGTH = 128
# ":" separates the parts of a key, "|" those of a combined identifier. C1 controls and lone surrogates
# (bytes that are no UTF-8) are no more printable than C0 ones.
_NEEDS_HASH = re.compile("[:|\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN_TYPES = ("none", "session_id", "ip_user_agent", "ip", "user_id")
_NAMED_TYPES = ("header", "cookie", "path", "jwt_claim")
_JOINED = re.compile(r",(?! )")
_CLAIM = re.compile(r"[!-~]{1,128}")  # some issuers name claims by URL
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")

Extractor = Callable[[RequestMetadata, str | None], str | None]


@dataclass(frozen=True, slots=True)
class IdentityOptions:
    """What the configuration says about finding identifiers."""

    #: IPv6 callers are counted by network of this length.
    ipv6_prefix: int = 64
    #: The header in which the proxy's own JWT filter puts the verified payload, base64url-encoded JSON.
    jwt_payload_header: str = "x-jwt-payload"


def identifier_types(identifier_type: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The types of a rule as a tuple: one, or those of a combined key."""
    if identifier_type is None:
        return ()
    return (identifier_type,) if isinstance(identifier_type, str) else tuple(identifier_type)


def check_identifier_type(kind: str, parameters: Collection[str]) -> str | None:
    """What is wrong with one identifier type of a rule whose route has these parameters, if anything."""
    prefix, colon, name = kind.partition(":")
    if not colon:
        if kind in _PLAIN_TYPES:
            return None
    elif prefix in _NAMED_TYPES and (_CLAIM if prefix == "jwt_claim" else _NAME).fullmatch(name):
        if prefix == "path" and name not in parameters:
            return f"the route has no segment {{{name}}}"
        return None
    expected = ", ".join([*_PLAIN_TYPES, *(f"{named}:NAME" for named in _NAMED_TYPES)])
    return f"expected {expected}, got {kind!r}"


def check_written(identifier_type: str | tuple[str, ...] | None, written: str) -> str | None:
    """What is wrong with an identifier as a person writes it for these types, if anything."""
    kinds = identifier_types(identifier_type)
    parts = written.split("|", max(0, len(kinds) - 1))
    if kinds == ("none",):
        return "everyone is counted together, so nobody can be named"
    if len(parts) != len(kinds):
        return f"expected {len(kinds)} parts joined by '|', one for each of {', '.join(kinds)}"
    if any(kind == "ip" and not _written_address(part) for kind, part in zip(kinds, parts, strict=True)):
        return f"expected an address, got {written!r}"
    return None


def _written_address(written: str) -> Address | None:
    """An address, or the network that its callers are counted by (`2001:db8::/64`)."""
    return canonical_address(written.partition("/")[0])


def cookie_value(header: str, name: str) -> str | None:
    """The first cookie of that name (RFC 6265 section 4.2), quotes kept off."""
    for pair in header.split(";"):
        key, equals, value = pair.partition("=")
        if equals and key.strip() == name:
            return value.strip().strip('"') or None
    return None


def encode(value: str) -> str:
    """The text of a value inside a counter's key."""
    if len(value) > _MAX_LENGTH or _NEEDS_HASH.search(value):
        return "#" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return "=" + value


def fallback_to_address(address: Address | None, options: IdentityOptions) -> str:
    return "~ip=" + address_identity(address, options.ipv6_prefix)


FALLBACK_SHARED = "~shared"


def is_fallback(identifier: str) -> bool:
    """Whether it stands in for one that was missing."""
    return identifier.startswith("~")


def shown_identifier(identifier_type: str | tuple[str, ...] | None, text: str) -> str:
    """An identifier's text as people may see it: secrets as eight digits of their hash."""
    kinds = identifier_types(identifier_type)
    parts = text.split("|", len(kinds) - 1) if len(kinds) > 1 else [text]
    if text.startswith("~") or len(parts) != len(kinds):
        return text
    return "|".join(
        hashed(part) if _is_secret(kind) else part[1:] for kind, part in zip(kinds, parts, strict=True)
    )


def shown_written(identifier_type: str | tuple[str, ...] | None, written: str) -> str:
    """The same of an identifier as a person writes it, in a rule's `overrides`."""
    kinds = identifier_types(identifier_type)
    parts = written.split("|", max(0, len(kinds) - 1))
    return "|".join(
        hashed(encode(part)) if _is_secret(kind) else part for kind, part in zip(kinds, parts, strict=True)
    )


def _is_secret(kind: str) -> bool:
    return kind == "session_id" or kind.startswith(("cookie:", "header:"))


def hashed(text: str) -> str:
    """Enough to tell callers apart, and to find one whose session is known.

    A value that is counted by its SHA-256 already shows the beginning of it, so both ways agree.
    """
    if text.startswith("#"):
        return text[1:9]
    return hashlib.sha256(text.removeprefix("=").encode("utf-8", "surrogatepass")).hexdigest()[:8]


class IdentifierReader:
    """Reads the identifier of one rule from requests; made once per rule.

    `parameters` gives the index of each of the route's named segments.
    """

    def __init__(
        self,
        identifier_type: str | tuple[str, ...] | None,
        parameters: Mapping[str, int],
        options: IdentityOptions,
    ) -> None:
        kinds = identifier_types(identifier_type)
        self._extract = [_extractor(kind, parameters, options) for kind in kinds]
        #: Most rules count one thing: what is made for several would cost them more than the rest.
        self._alone = self._extract[0] if len(kinds) == 1 else None
        self._is_address = [kind == "ip" for kind in kinds]
        self._ipv6_prefix = options.ipv6_prefix

    def values(self, request: RequestMetadata, path: str | None) -> tuple[str, ...] | None:
        """The value of each type, or `None` when one of them is missing."""
        if self._alone is not None:
            value = self._alone(request, path)
            return None if value is None else (value,)
        values = tuple(extract(request, path) for extract in self._extract)
        return None if None in values else values  # type: ignore[return-value]

    def identify(self, request: RequestMetadata, path: str | None) -> str | None:
        """The identifier's text in one step, where nobody asks for the values that it is made of."""
        if self._alone is None:
            return None if (values := self.values(request, path)) is None else self.identifier(values)
        value = self._alone(request, path)
        if value is None:
            return None
        return "=" + value if self._is_address[0] else encode(value)

    def parse(self, written: str) -> tuple[str, ...]:
        """The values of an identifier as a person writes it; parts of a combined key joined by `|`."""
        parts = written.split("|", max(0, len(self._is_address) - 1))
        return tuple(
            address_identity(_written_address(part), self._ipv6_prefix) if is_address else part
            for part, is_address in zip(parts, self._is_address, strict=False)
        )

    def identifier(self, values: tuple[str, ...]) -> str:
        """The text of these values inside a counter's key."""
        if self._alone is not None:
            return "=" + values[0] if self._is_address[0] else encode(values[0])
        return "|".join(
            "=" + value if is_address else encode(value)
            for value, is_address in zip(values, self._is_address, strict=False)
        )


def _extractor(kind: str, parameters: Mapping[str, int], options: IdentityOptions) -> Extractor:
    prefix, _, name = kind.partition(":")
    match prefix:
        case "session_id":
            return lambda request, path: request.session_id
        case "user_id":
            return lambda request, path: request.user_id
        case "ip":
            length = options.ipv6_prefix
            return lambda request, path: (
                address_identity(request.address, length) if request.has_address else None
            )
        case "ip_user_agent":
            return lambda request, path: _ip_user_agent(request, options)
        case "header":
            return lambda request, path: _one_value(request.headers.get(name.lower()))
        case "cookie":
            return lambda request, path: cookie_value(request.headers.get("cookie", ""), name)
        case "path":
            index = parameters[name] + 1
            return lambda request, path: path.split("/", index + 1)[index] if path else None
        case "jwt_claim":
            header = options.jwt_payload_header
            return lambda request, path: _jwt_claim(request.headers.get(header), name)
        case _:
            return lambda request, path: ""


def _one_value(value: str | None) -> str | None:
    """A header that came twice says nothing for sure: proxies join its values by a comma alone.

    Each other second value would be another counter, while the application may read the first.
    """
    return None if not value or _JOINED.search(value) else value


def _ip_user_agent(request: RequestMetadata, options: IdentityOptions) -> str | None:
    if request.user_agent is None or not request.has_address:
        return None
    who = f"{address_identity(request.address, options.ipv6_prefix)}|{request.user_agent}"
    return hashlib.sha256(who.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _jwt_claim(payload: str | None, name: str) -> str | None:
    """A claim of the payload that the proxy has verified; text as it is, other scalars as JSON."""
    if not payload or "," in payload:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return None
    claim = claims.get(name) if isinstance(claims, dict) else None
    if isinstance(claim, str):
        return claim or None
    return json.dumps(claim) if isinstance(claim, int | float) else None
