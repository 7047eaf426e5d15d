"""Key pairs, the sets that publish them, and tokens: right ones, and as wrong as a test wants them."""

import base64
import json
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET = "a-secret-of-the-tests-with-more-than-32-bytes"

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def key_pair(name: str, algorithm: str = "RS256") -> PrivateKey:
    """The key pair of that name, the same for all tests of a session."""
    if algorithm in ("ES256", "ES384"):
        return ec.generate_private_key(ec.SECP256R1() if algorithm == "ES256" else ec.SECP384R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=1024 if name == "short" else 2048)


def jwk(name: str, algorithm: str = "RS256", **more: Any) -> dict[str, Any]:
    """The public key as a set has it; `more` is added, or with `None` taken away."""
    public: Any = key_pair(name, algorithm).public_key()
    made: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(public, as_dict=True)
    made |= {"kid": name, "use": "sig", "alg": algorithm} | more
    return {name: value for name, value in made.items() if value is not None}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def public_pem(name: str) -> bytes:
    return key_pair(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def claims(**changed: Any) -> dict[str, Any]:
    """Those of an admin's token that holds for a minute; `None` takes one away."""
    made = {"sub": "ada", "role": "admin", "exp": int(time.time()) + 60} | changed
    return {name: value for name, value in made.items() if value is not None}


def encoded(payload: Any, key: PrivateKey | bytes, algorithm: str, header: dict[str, Any]) -> str:
    """Not `jwt.encode`, which would not write every wrong claim."""
    return jwt.PyJWS().encode(json.dumps(payload).encode(), key, algorithm, {"typ": "JWT"} | header)


def hs256(secret: str = SECRET, **changed: Any) -> str:
    return encoded(claims(**changed), secret.encode(), "HS256", {})


def signed(
    name: str, algorithm: str = "RS256", header: Mapping[str, Any] | None = None, **changed: Any
) -> str:
    """A token signed with the key of that name, which its header names too."""
    headers = {"kid": name} if header is None else dict(header)
    return encoded(claims(**changed), key_pair(name, algorithm), algorithm, headers)


def forged(header: Any, payload: Any, signature: bytes = b"") -> str:
    """Whatever a stranger writes: no library would make it."""
    parts = [json.dumps(part).encode() if not isinstance(part, bytes) else part for part in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))
