"""Single values that strangers write: paths, addresses, cookies, tokens, and what is counted by them."""

import asyncio
import base64
import contextlib
import json
import re
from typing import Any

from hypothesis import strategies as st
from multidict import CIMultiDict

from sidecar.domain.address import canonical_address, canonical_network
from sidecar.domain.errors import InvalidValue
from sidecar.domain.identity import IdentifierReader, IdentityOptions, cookie_value, encode
from sidecar.domain.request import RequestMetadata, canonical_host
from sidecar.domain.route import RoutePattern, canonical_path
from sidecar.infrastructure.admin.access import Caller, TokenRules
from sidecar.infrastructure.admin.key_sets import KeySet
from sidecar.infrastructure.admin.tokens import Tokens
from sidecar.infrastructure.http.client_address import AddressSource
from sidecar.infrastructure.http.messages import Headers, origin_form
from tests import tokens
from tests.fuzz.texts import changed, json_values, latin, spoilt, text

_LOOP = asyncio.new_event_loop()
_KEY = re.compile(r"[=#][^\x00-\x1f|\x7f]*")


def path_holds(given: tuple[str, bool, str]) -> None:
    """Canonical paths are canonical, and every pattern that is one can be asked about them."""
    target, decode, written = given
    path = canonical_path(target, decode_slashes=decode)
    if path is not None:
        assert path.startswith("/") or path == "*", path
        assert canonical_path(path, decode_slashes=decode) == path
        assert not {".", "..", ""} & set(path.removeprefix("/").split("/")[:-1]), path
    origin_form(target)
    try:
        pattern = RoutePattern.parse(written)
    except (InvalidValue, ValueError):
        return
    assert isinstance(pattern.matches(path), bool)
    assert pattern.covers(pattern)


def address_holds(given: tuple[str, int, list[str]]) -> None:
    """An address is read as one and the same, or not at all; X-Forwarded-For from the right."""
    written, hops, entries = given
    address = canonical_address(written)
    assert address is None or canonical_address(str(address)) == address
    with contextlib.suppress(ValueError):
        canonical_network(written)
    canonical_host(written)
    forwarded = {"x-forwarded-for": ",".join([*entries, "192.0.2.7"])}
    nearest = AddressSource(header=None, trusted_hops=1, trusted_networks=())
    assert str(nearest.read(forwarded)) == "192.0.2.7", "callers write in front of it only"
    AddressSource(header=None, trusted_hops=hops, trusted_networks=()).read(forwarded)
    behind = AddressSource(header=None, trusted_networks=(canonical_network("192.0.2.0/24"),))
    behind.read(forwarded)
    AddressSource(header="x-client-ip").read({"x-client-ip": written})


def identity_holds(given: tuple[list[str], str, list[tuple[str, str]]]) -> None:
    """Two values are two counters; no value makes a key long or leaves its place in it."""
    values, cookies, headers = given
    keys = {encode(value) for value in values}
    assert len(keys) == len(set(values))
    assert all(len(key) <= 129 and _KEY.fullmatch(key) for key in keys), keys
    cookie_value(cookies, "a")
    dict(Headers(CIMultiDict(headers)))


def payload_holds(payload: str) -> None:
    """A claim is text or missing, whatever the header says."""
    request = RequestMetadata(method="GET", target="/", host="h", headers={"x-jwt-payload": payload})
    reader = IdentifierReader("jwt_claim:sub", {}, IdentityOptions())
    found = reader.values(request, "/")
    assert found is None or all(isinstance(value, str) for value in found)
    if found is not None:
        assert len(reader.identifier(found)) <= 129


def token_holds(token: str) -> None:
    """Nobody is let in by a token that was not signed as it stands."""
    caller = _LOOP.run_until_complete(_TOKENS.caller(token))
    assert not isinstance(caller, Caller) or _same(token, _RIGHT), (token, caller)


def _same(token: str, right: str) -> bool:
    """Base64 has several ways to write the last bits of a part."""
    parts, others = token.split("."), right.split(".")
    return len(parts) == 3 and all(_bytes(a) == _bytes(b) for a, b in zip(parts, others, strict=True))


def _bytes(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def key_set_holds(document: bytes) -> None:
    with contextlib.suppress(ValueError):
        KeySet(document, ("RS256", "ES256", "EdDSA")).find("k", "RS256")


_RULES = TokenRules(secret=tokens.SECRET)
_TOKENS = Tokens(_RULES)
_RIGHT = tokens.hs256(exp=4_000_000_000)
_HEAD, _BODY, _SIGNATURE = _RIGHT.split(".")


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def paths() -> st.SearchStrategy[Any]:
    return st.tuples(text(), st.booleans(), text(6).map(lambda made: "/" + made) | text(4))


def addresses() -> st.SearchStrategy[Any]:
    written = text(4) | spoilt(
        ["192.0.2.1:80", "[2001:db8::1]:443", "::ffff:192.0.2.1", "10.0.0.0/8", "fe80::1%e"]
    )
    return st.tuples(written, st.integers(1, 32), st.lists(written, max_size=40))


def identities() -> st.SearchStrategy[Any]:
    names = st.sampled_from(["Cookie", "X-A", "x-a", "Host"])
    return st.tuples(st.lists(text(), max_size=8), latin(), st.lists(st.tuples(names, latin(3)), max_size=20))


def payloads() -> st.SearchStrategy[str]:
    claims = st.fixed_dictionaries({"sub": json_values()}) | json_values()
    return text(5) | claims.map(_part) | st.just(base64.urlsafe_b64encode(b"[" * 20_000).decode())


def forged() -> st.SearchStrategy[str]:
    """Spoilt ones, other algorithms, other claims under the right signature."""
    heads = st.sampled_from(["none", "None", "HS256", "HS512", "RS256", "", None, 1]).map(
        lambda algorithm: _part({"alg": algorithm, "typ": "JWT", "kid": "k"})
    ) | json_values().map(_part)
    bodies = changed(tokens.claims(exp=4_000_000_000)).map(_part) | st.just(_BODY)
    signatures = st.sampled_from([_SIGNATURE, "", "AAAA", _SIGNATURE[:-1]])
    parts = st.tuples(heads | st.just(_HEAD), bodies, signatures).map(".".join)
    return spoilt([_RIGHT]) | parts | text(6)


def key_sets() -> st.SearchStrategy[bytes]:
    right = json.loads(tokens.key_set(tokens.jwk("k"), tokens.jwk("e", "ES256"), tokens.jwk("d", "EdDSA")))
    trees = changed(right).map(lambda made: json.dumps(made).encode())
    return trees | json_values().map(lambda made: json.dumps(made).encode()) | st.binary(max_size=60)
