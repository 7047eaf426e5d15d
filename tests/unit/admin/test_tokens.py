"""Tokens: who is let in, and that nothing a stranger writes into one lets him in."""

import hashlib
import hmac
import time
from typing import Any

import jwt
import pytest

from sidecar.infrastructure.admin.access import Caller, Failure, TokenRules
from sidecar.infrastructure.admin.key_sets import KeySet
from sidecar.infrastructure.admin.tokens import MAX_TOKEN_LENGTH, Tokens
from tests import tokens as make
from tests.tokens import SECRET

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
NOW = int(time.time())


class Keys:
    """A key set that never changes; says for which names it was asked."""

    def __init__(self, *keys: dict[str, Any], algorithms: tuple[str, ...] = ("RS256", "ES256")) -> None:
        self._keys = KeySet(make.key_set(*keys), algorithms)
        self.asked: list[str | None] = []

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        self.asked.append(kid)
        return self._keys.find(kid, algorithm)


def with_secret(**rules: Any) -> Tokens:
    return Tokens(TokenRules(secret=SECRET, **rules))


def with_keys(
    *keys: dict[str, Any], algorithms: tuple[str, ...] = ("RS256", "ES256"), **rules: Any
) -> Tokens:
    of_set = Keys(*(keys or (make.jwk("one"),)), algorithms=algorithms)
    return Tokens(TokenRules(jwks_url="https://unused", algorithms=algorithms, **rules), keys=of_set)


def signed_by_hand(header: dict[str, Any], payload: Any, key: bytes) -> str:
    unsigned = make.forged(header, payload).rpartition(".")[0]
    signature = hmac.new(key, unsigned.encode(), hashlib.sha256).digest()
    return unsigned + "." + make.forged("", "", signature).rpartition(".")[2]


@pytest.mark.parametrize(("role", "may_change"), [("viewer", False), ("admin", True)])
async def test_a_token_names_its_subject_and_its_role(role: str, may_change: bool) -> None:
    """By a secret and by a public key alike."""
    expected = Caller("jwt:ada", may_change)
    assert await with_secret().caller(make.hs256(role=role)) == expected
    assert await with_keys().caller(make.signed("one", role=role)) == expected


@pytest.mark.parametrize("algorithm", ASYMMETRIC)
async def test_each_algorithm_verifies_once_it_is_configured(algorithm: str) -> None:
    """And a token signed with another key of the same name does not."""
    tokens = with_keys(make.jwk("one", algorithm), algorithms=(algorithm,))
    assert await tokens.caller(make.signed("one", algorithm)) == Caller("jwt:ada", True)
    assert await tokens.caller(make.signed("two", algorithm, {"kid": "one"})) is Failure.SIGNATURE


@pytest.mark.parametrize(
    ("changed", "failure"),
    [
        ({"exp": NOW - 1}, Failure.EXPIRED),
        ({"exp": NOW - 3600}, Failure.EXPIRED),
        ({"exp": None}, Failure.CLAIMS),
        ({"exp": "soon"}, Failure.MALFORMED),
        ({"exp": float("inf")}, Failure.MALFORMED),
        ({"exp": [NOW + 60]}, Failure.MALFORMED),
        ({"nbf": NOW + 3600}, Failure.NOT_YET_VALID),
        ({"iat": NOW + 3600}, Failure.NOT_YET_VALID),
        ({"aud": "another"}, Failure.AUDIENCE),
        ({"aud": ["another", "sidecars"]}, Failure.AUDIENCE),
        ({"aud": {"sidecar": 1}}, Failure.AUDIENCE),
        ({"aud": None}, Failure.CLAIMS),
        ({"iss": "https://issuer.example/"}, Failure.ISSUER),
        ({"iss": ["https://issuer.example"]}, Failure.ISSUER),
        ({"iss": None}, Failure.CLAIMS),
        ({"role": None}, Failure.ROLE),
        ({"role": ""}, Failure.ROLE),
        ({"role": "Admin"}, Failure.ROLE),
        ({"role": "root"}, Failure.ROLE),
        ({"role": ["admin"]}, Failure.ROLE),
        ({"role": True}, Failure.ROLE),
        ({"role": {"admin": 1}}, Failure.ROLE),
        ({"sub": None}, Failure.CLAIMS),
        ({"sub": ""}, Failure.CLAIMS),
        ({"sub": "  "}, Failure.CLAIMS),
        ({"sub": "a" * 257}, Failure.CLAIMS),
        ({"sub": "ada\nops"}, Failure.CLAIMS),
    ],
)
@pytest.mark.parametrize("kind", ["secret", "keys"])
async def test_a_token_with_a_wrong_claim_lets_nobody_in(
    kind: str, changed: dict[str, Any], failure: Failure
) -> None:
    """However well it is signed."""
    expected: dict[str, Any] = {"audience": "sidecar", "issuer": "https://issuer.example"}
    tokens = with_secret(**expected) if kind == "secret" else with_keys(**expected)
    right = {"aud": "sidecar", "iss": "https://issuer.example"}
    encode: Any = make.hs256 if kind == "secret" else lambda **named: make.signed("one", **named)
    assert isinstance(await tokens.caller(encode(**right)), Caller)
    assert await tokens.caller(encode(**right | changed)) is failure


async def test_a_subject_that_is_no_text_lets_nobody_in() -> None:
    """It would stand in the audit list."""
    for subject in (7, ["ada"], {"name": "ada"}, True):
        token = signed_by_hand({"alg": "HS256"}, make.claims(sub=subject), SECRET.encode())
        assert await with_secret().caller(token) is Failure.CLAIMS


async def test_one_of_several_audiences_may_be_this_one() -> None:
    tokens = with_secret(audience="sidecar")
    assert isinstance(await tokens.caller(make.hs256(aud=["x", "sidecar"])), Caller)


async def test_without_an_audience_configured_any_counts() -> None:
    assert isinstance(await with_secret().caller(make.hs256(aud="another")), Caller)


@pytest.mark.parametrize(("leeway", "expected"), [(0, Failure.EXPIRED), (30, Caller("jwt:ada", True))])
async def test_the_leeway_forgives_a_clock_that_differs(leeway: int, expected: Caller | Failure) -> None:
    token = make.hs256(exp=int(time.time()) - 10)
    assert await with_secret(leeway_seconds=leeway).caller(token) == expected


@pytest.mark.parametrize("alg", ["none", "None", "nOnE", "", None, 1, ["RS256"], {"RS256": 1}, "HS512"])
@pytest.mark.parametrize("kind", ["secret", "keys"])
async def test_an_algorithm_that_is_not_configured_is_refused(kind: str, alg: Any) -> None:
    """With a signature, with an empty one, and with none at all."""
    tokens = with_secret() if kind == "secret" else with_keys()
    for signature in (b"", b"x", b"\0" * 32):
        token = make.forged({"alg": alg, "kid": "one"}, make.claims(), signature)
        assert await tokens.caller(token) in (Failure.ALGORITHM, Failure.MALFORMED)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384"])
async def test_a_public_key_is_no_secret(algorithm: str) -> None:
    """Everyone has it: a token signed with it as if it were one is refused."""
    header = {"alg": algorithm, "kid": "one"}
    for key in (make.public_pem("one"), make.public_pem("one").strip(), make.jwk("one")["n"].encode()):
        token = signed_by_hand(header, make.claims(), key)
        assert await with_keys().caller(token) is Failure.ALGORITHM


async def test_a_secret_key_in_the_set_is_not_used() -> None:
    """Not even if HS256 were let through by mistake."""
    tokens = with_keys(
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "one"},
        algorithms=("HS256", "RS256"),
    )
    key = b"secret-secret-secret-secret-secret"
    token = signed_by_hand({"alg": "HS256", "kid": "one"}, make.claims(), key)
    assert await tokens.caller(token) is Failure.UNKNOWN_KEY


async def test_a_token_by_public_key_means_nothing_to_a_secret() -> None:
    assert await with_secret().caller(make.signed("one")) is Failure.ALGORITHM


async def test_another_secret_is_refused() -> None:
    assert await with_secret().caller(make.hs256(SECRET + "x")) is Failure.SIGNATURE
    assert await with_secret().caller(make.hs256(SECRET[:-1])) is Failure.SIGNATURE


@pytest.mark.parametrize("header", ["jku", "x5u", "jwk", "x5c"])
async def test_a_token_does_not_say_where_its_key_is(header: str) -> None:
    """Who signs with a key of his own and names it himself is refused like everybody."""
    keys = Keys(make.jwk("one"))
    tokens = Tokens(TokenRules(jwks_url="https://unused"), keys=keys)
    named: dict[str, Any] = {"jwk": make.jwk("mine"), "x5c": ["AAAA"]}
    url = named.get(header, "https://attacker.example/keys")
    for kid, failure in (("mine", Failure.UNKNOWN_KEY), ("one", Failure.SIGNATURE)):
        assert await tokens.caller(make.signed("mine", header={header: url, "kid": kid})) is failure
    assert keys.asked == ["mine", "one"]


@pytest.mark.parametrize("kid", ["../../etc/passwd", "", "one' OR '1'='1", "ONE", "one ", "x" * 2000])
async def test_an_unknown_key_name_is_refused(kid: str) -> None:
    assert await with_keys().caller(make.signed("one", header={"kid": kid})) is Failure.UNKNOWN_KEY


@pytest.mark.parametrize("kid", [None, 1, ["one"], {"kid": "one"}, True])
async def test_a_key_name_that_is_no_text_is_malformed(kid: Any) -> None:
    assert await with_keys().caller(make.forged({"alg": "RS256", "kid": kid}, {})) is Failure.MALFORMED


async def test_a_key_does_for_its_own_algorithm_only() -> None:
    """A set may say for which; a curve belongs to one of them."""
    both = ("RS256", "RS384", "ES256", "ES384")
    tokens = with_keys(make.jwk("one"), make.jwk("curve", "ES384", alg=None), algorithms=both)
    assert await tokens.caller(make.signed("one", "RS384")) is Failure.UNKNOWN_KEY
    assert isinstance(await tokens.caller(make.signed("curve", "ES384")), Caller)
    assert await tokens.caller(make.signed("curve", "ES256", {"kid": "curve"})) is Failure.UNKNOWN_KEY


async def test_a_short_rsa_key_is_not_used() -> None:
    """Such keys have been broken."""
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = make.signed("short")
    assert await with_keys(make.jwk("short")).caller(token) is Failure.MALFORMED


@pytest.mark.parametrize(
    "token",
    [
        "x",
        ".",
        "..",
        "...",
        "a.b.c",
        "a.b.c.d.e",
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJhbGciOiJIUzI1NiJ9..",
        "caf\xe9.x.y",
        "\udce9.\udce9.\udce9",
        "\0.\0.\0",
        make.forged([], {}),
        make.forged("text", {}),
        make.forged({}, {}),
        make.forged(b"[" * 5000, {}),
        make.forged(b'{"a":' * 1500, {}),
        make.forged(b"\xff\xfe", {}),
        make.forged({"alg": "HS256", "crit": ["exp"]}, {}),
        make.forged({"alg": "HS256", "b64": False, "crit": ["b64"]}, {}),
        signed_by_hand({"alg": "HS256"}, b"[" * 3000, SECRET.encode()),
        signed_by_hand({"alg": "HS256"}, b"not json", SECRET.encode()),
        signed_by_hand({"alg": "HS256"}, ["admin"], SECRET.encode()),
        signed_by_hand({"alg": "HS256", "crit": ["role"]}, make.claims(), SECRET.encode()),
    ],
)
async def test_garbage_is_refused_and_breaks_nothing(token: str) -> None:
    refused = (Failure.MALFORMED, Failure.ALGORITHM, Failure.SIGNATURE)
    assert await with_secret().caller(token) in refused


async def test_a_huge_token_is_not_even_read() -> None:
    """However valid it is."""
    token = make.hs256(padding="x" * MAX_TOKEN_LENGTH)
    assert await with_secret().caller(token) is Failure.MALFORMED


async def test_a_changed_token_is_refused() -> None:
    """Each part belongs to the signature."""
    header, payload, signature = make.hs256(role="viewer").split(".")
    raised = make.hs256("another-secret-that-is-long-enough-for-this", role="admin").split(".")[1]
    for changed in (
        f"{header}.{raised}.{signature}",
        f"{header}.{payload}.{signature[:-4]}AAAA",
        f"{header}.{payload}.",
    ):
        assert await with_secret().caller(changed) is Failure.SIGNATURE


def test_rules_never_show_their_secret() -> None:
    rules = TokenRules(secret=SECRET, jwks_url="https://user:password@issuer.example")
    assert SECRET not in repr(rules)
    assert "password" not in repr(rules)
