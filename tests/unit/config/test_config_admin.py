"""The `admin` part of the configuration: who is let in is said plainly, and mistakes show when loading."""

from importlib import util
from pathlib import Path
from typing import Any

import pytest

from sidecar.infrastructure.config import ConfigurationError, load
from sidecar.infrastructure.config import admin as module
from sidecar.infrastructure.config.admin import Admin

SECRET = "a-secret-with-more-than-thirty-two-bytes"


def admin(folder: Path, text: str, **environ: str) -> Admin:
    path = folder / "sidecar.yaml"
    path.write_text(f"admin: {text}")
    return load(path, environ).settings.admin


def refused(folder: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        admin(folder, text, **environ)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        (f"{{secret: {SECRET}}}", ("HS256",)),
        (f"{{secret: {SECRET}, algorithms: [HS256]}}", ("HS256",)),
        ("{jwks_url: 'https://issuer.example/keys'}", ("RS256", "ES256")),
        ("{jwks_url: 'http://127.0.0.1:1/keys'}", ("RS256", "ES256")),
        ("{jwks_file: /run/keys.json, algorithms: [EdDSA, PS256]}", ("EdDSA", "PS256")),
    ],
)
def test_tokens_are_verified_by_a_secret_or_by_a_key_set(
    tmp_path: Path, text: str, pinned: tuple[str, ...]
) -> None:
    """By the algorithms that are configured, or by safe ones."""
    jwt = admin(tmp_path, f"{{jwt: {text}}}").jwt
    assert jwt is not None
    assert (jwt.pinned, jwt.audience, jwt.issuer, jwt.leeway_seconds) == (pinned, None, None, 0)


ONE = "expected one of secret, jwks_url and jwks_file"
URL = "jwks_url: expected https://host/…, or http:// on this machine's loopback"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", ONE),
        (f"{{secret: {SECRET}, jwks_url: 'https://h/'}}", ONE),
        ("{jwks_file: /k, jwks_url: 'https://h/'}", ONE),
        (f"{{secret: {SECRET[:31]}}}", "secret: expected at least 32 bytes"),
        ("{secret: ''}", "secret: expected at least 32 bytes"),
        (f"{{secret: '-----BEGIN PUBLIC KEY----- {SECRET}'}}", "secret: expected a secret that both sides"),
        (f"{{secret: {SECRET}, algorithms: [RS256]}}", "expected no algorithms but HS256 with a secret"),
        (f"{{secret: {SECRET}, algorithms: [HS256, RS256]}}", "expected no algorithms but HS256"),
        ("{jwks_file: /k, algorithms: [HS256]}", "expected no HS256 without a secret"),
        ("{jwks_file: /k, algorithms: [RS256, HS256]}", "expected no HS256 without a secret"),
        ("{jwks_file: /k, algorithms: [none]}", "algorithms.0: expected 'HS256', "),
        ("{jwks_file: keys.json}", "jwks_file: expected an absolute path"),
        ("{jwks_url: 'http://issuer.example/'}", URL),
        ("{jwks_url: 'http://localhost.issuer.example/'}", URL),
        ("{jwks_url: 'http://127.0.0.1@issuer.example/'}", URL),
        ("{jwks_url: 'file:///etc/keys'}", URL),
        ("{jwks_url: 'https://'}", URL),
        ("{jwks_url: 'https://h:port/'}", URL),
        ("{jwks_file: /k, leeway_seconds: 61}", "leeway_seconds: expected at most 60"),
        ("{jwks_file: /k, audience: ''}", "audience: expected at least 1 character"),
        ("{jwks_file: /k, issuers: x}", "issuers: unknown key; did you mean issuer?"),
    ],
)
def test_what_nobody_or_anybody_could_use_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    """Named with its place; the secret is not repeated."""
    told = refused(tmp_path, f"{{jwt: {text}}}")
    assert told.startswith("sidecar.yaml:1: admin.jwt")
    assert message in told
    assert SECRET[:31] not in told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SECRET", "admin: expected an object"),
        ("[SECRET]", "admin: expected an object"),
        ("{keys: SECRET}", "admin.keys: expected a list"),
        ("{keys: [SECRET]}", "admin.keys.0: expected an object"),
        ("{keys: [{SECRET: admin}]}", "admin.keys.0: unknown key; expected name, key, role"),
        ("{keys: [{name: ops, key: [SECRET]}]}", "admin.keys.0.key: expected a string"),
        ("{keys: [{name: ops, key: !SECRET x}]}", "admin.keys.0.key: a tag (quote a text"),
        ("{keys: [{name: 'ops: SECRET', key: long-enough}]}", "admin.keys.0.name: expected text that"),
        (
            "{keys: [{name: SECRET, key: long-enough}, {name: SECRET, key: ''}]}",
            "admin.keys: expected another",
        ),
        ("{keys: [{name: ops, key: long-enough, role: SECRET}]}", "admin.keys.0.role: expected 'admin' or"),
        ("{jwt: SECRET}", "admin.jwt: expected an object"),
        ("{jwt: {secret: [SECRET]}}", "admin.jwt.secret: expected a string"),
        ("{jwt: {jwks_file: SECRET}}", "admin.jwt.jwks_file: expected an absolute path"),
        ("{jwt: {jwks_file: /k, algorithms: SECRET}}", "admin.jwt.algorithms: expected a list"),
        ("{jwt: {jwks_file: /k, leeway_seconds: SECRET}}", "admin.jwt.leeway_seconds: expected an integer"),
        ("{SECRET: 1}", "admin: unknown key; expected keys, jwt, failures_per_minute"),
        ("{failures_per_minute: SECRET}", "admin.failures_per_minute: expected an integer"),
    ],
)
def test_nothing_of_what_stands_there_is_repeated(tmp_path: Path, text: str, problem: str) -> None:
    """A key or a secret may have been written into any place of it."""
    told = refused(tmp_path, text.replace("SECRET", "SUPERSECRET-KEY-1"))
    assert any(line.startswith(f"sidecar.yaml:1: {problem}") for line in told.splitlines())
    assert "SUPER" not in told


def test_a_slip_in_the_name_of_a_key_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path, "{keyz: []}") == "sidecar.yaml:1: admin.keyz: unknown key; did you mean keys?"


def test_the_secret_may_come_from_a_file(tmp_path: Path) -> None:
    """As secrets are mounted."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    jwt = admin(tmp_path, "{jwt: {secret: '${file:secret}'}}").jwt
    assert jwt is not None
    assert jwt.secret == SECRET
    assert SECRET not in repr(jwt)


@pytest.mark.parametrize("absent", ["jwt", "cryptography"])
def test_without_the_libraries_it_is_said_how_to_get_them(
    tmp_path: Path, absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When loading, and only where tokens are configured."""

    def find(name: str) -> Any:
        return None if name == absent else util.find_spec(name)

    monkeypatch.setattr(module, "find_spec", find)
    message = refused(tmp_path, f"{{jwt: {{secret: {SECRET}}}}}")
    assert message == (
        "sidecar.yaml:1: admin.jwt: needs libraries of an extra: pip install ratelimit-sidecar[jwt]"
    )
    assert admin(tmp_path, "{keys: [{name: a, key: long-enough}]}").jwt is None
    assert admin(tmp_path, "{jwt: null}").jwt is None


@pytest.mark.parametrize(("value", "bound"), [("0", "at least 1"), ("1001", "at most 1000")])
def test_the_failures_that_an_address_may_have_are_bounded(tmp_path: Path, value: str, bound: str) -> None:
    assert f"expected {bound}" in refused(tmp_path, f"{{failures_per_minute: {value}}}")
