"""Access to the admin port of a real sidecar: every route with each credential, and what failures show."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tokens as make
from tests.raw_http import Reply, ask
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess

RULE = {"id": "all", "route": "/*", "identifier_type": "none", "limit": 5, "window_seconds": 3600}
CONFIG: dict[str, Any] = {"default_client": "c", "clients": [{"id": "c", "rules": [RULE]}]}
ROTATED = "admin-key-of-the-tests-before"
KEYS = [
    {"name": "ops", "key": ADMIN, "role": "admin"},
    {"name": "ops-before", "key": ROTATED, "role": "admin"},
    {"name": "watcher", "key": VIEWER, "role": "viewer"},
]
DESCRIBED = {
    "client_id": "c",
    "route": "/x",
    "method": "GET",
    "identifier": {"type": "session_id", "session_id": "s"},
}
POLICY = "/v1/clients/c/policies/all"

#: Method, path, body, and what a caller with enough of a role is answered.
OPEN = [("GET", "/health", None, 200), ("GET", "/ready", None, 200), ("GET", "/metrics", None, 200)]
READING = [
    ("GET", "/v1/clients", None, 200),
    ("HEAD", "/v1/clients", None, 200),
    ("GET", "/v1/clients/c", None, 200),
    ("GET", "/v1/clients/c/policies", None, 200),
    ("GET", POLICY, None, 200),
    ("GET", "/v1/clients/c/state", None, 200),
    ("GET", f"{POLICY}/identifiers", None, 200),
    ("GET", f"{POLICY}/busiest", None, 200),
    ("GET", "/v1/enforcement", None, 200),
    ("GET", "/v1/config", None, 200),
    ("GET", "/v1/audit", None, 200),
    ("POST", "/v1/explain", DESCRIBED, 200),
    ("GET", "/v1/none", None, 404),
    ("GET", "/v1/clients/none", None, 404),
]
#: What is wrong about these shows only to who may do it; so nothing is changed by the table.
CHANGING: list[tuple[str, str, Any, int]] = [
    ("POST", "/v1/clients", [], 400),
    ("PUT", "/v1/clients/c", [], 400),
    ("PATCH", "/v1/clients/c", [], 400),
    ("DELETE", "/v1/clients/none", None, 404),
    ("POST", "/v1/clients/c/policies", [], 400),
    ("PUT", POLICY, [], 400),
    ("PATCH", POLICY, [], 400),
    ("DELETE", "/v1/clients/none/policies/none", None, 404),
    ("DELETE", "/v1/clients/none/counters", None, 404),
    ("PUT", "/v1/enforcement", [], 400),
    ("DELETE", "/v1/enforcement", None, 204),
    ("POST", "/v1/reload", None, 200),
    ("DELETE", "/rate/reset/nobody", None, 404),
    ("POST", "/v1/none", None, 404),
    ("DELETE", "/v1/explain", None, 405),
]


def key(value: str) -> dict[str, str]:
    return {"X-Admin-Key": value}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


#: Name → headers. A token holds for a minute, so each is made when it is sent, not when this file is read.
Credentials = dict[str, Callable[[], dict[str, str]]]

VIEWERS: Credentials = {
    "viewer key": lambda: key(VIEWER),
    "viewer JWT": lambda: bearer(make.signed("one", role="viewer", aud="sidecar")),
}
ADMINS: Credentials = {
    "admin key": lambda: key(ADMIN),
    "rotated key": lambda: key(ROTATED),
    "admin JWT": lambda: bearer(make.signed("one", role="admin", aud="sidecar")),
    "wrong key, admin JWT": lambda: key("wrong") | bearer(make.signed("one", aud="sidecar")),
    "admin key, wrong JWT": lambda: key(ADMIN) | bearer("wrong"),
}
NOBODY: Credentials = {
    "no credential": dict,
    "empty key": lambda: key(""),
    "wrong key": lambda: key("wrong"),
    "non-ASCII key": lambda: key("caf\xe9\xff"),
    "JWT without a role": lambda: bearer(make.signed("one", role=None, aud="sidecar")),
    "JWT without a subject": lambda: bearer(make.signed("one", sub=None, aud="sidecar")),
    "JWT for another audience": lambda: bearer(make.signed("one", aud="another")),
    "expired JWT": lambda: bearer(make.signed("one", aud="sidecar", exp=1)),
    "JWT by another key": lambda: bearer(make.signed("two", header={"kid": "one"}, aud="sidecar")),
    "JWT with alg none": lambda: bearer(make.forged({"alg": "none"}, make.claims(aud="sidecar"))),
    "JWT with the public key as secret": lambda: bearer(
        make.forged({"alg": "HS256", "kid": "one"}, make.claims(), make.public_pem("one"))
    ),
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    folder = tmp_path_factory.mktemp("sidecar")
    (folder / "keys.json").write_bytes(make.key_set(make.jwk("one")))
    jwt = {"jwks_file": str(folder / "keys.json"), "audience": "sidecar"}
    admin = {"keys": KEYS, "jwt": jwt, "failures_per_minute": 1000}
    with SidecarProcess(folder, CONFIG | {"admin": admin}) as running:
        yield running


def send(running: SidecarProcess, method: str, path: str, headers: dict[str, str], body: Any = None) -> Reply:
    sent = None if body is None else json.dumps(body).encode()
    return ask(running.admin_port, method, path, headers, sent)


@pytest.mark.parametrize("who", [*NOBODY, *VIEWERS, *ADMINS])
def test_each_route_answers_each_role_as_it_should(sidecar: SidecarProcess, who: str) -> None:
    """Probes everybody, viewers what reads, admins everything, and all others one and the same 403."""
    headers = (NOBODY | VIEWERS | ADMINS)[who]()
    found: dict[str, int] = {}
    expected: dict[str, int] = {}
    for routes, may in ((OPEN, True), (READING, who not in NOBODY), (CHANGING, who in ADMINS)):
        for method, path, body, status in routes:
            reply = send(sidecar, method, path, headers, body)
            found[f"{method} {path}"] = reply.status
            expected[f"{method} {path}"] = status if may else 403
            assert "www-authenticate" not in reply.headers
    assert found == expected


def test_a_change_is_noted_under_the_name_of_its_maker(sidecar: SidecarProcess) -> None:
    """A key's name, or the subject of a token."""
    for who, client in (("admin key", "by-key"), ("rotated key", "by-old"), ("admin JWT", "by-token")):
        assert send(sidecar, "POST", "/v1/clients", ADMINS[who](), {"id": client}).status == 201
    entries = send(sidecar, "GET", "/v1/audit", key(VIEWER)).json["entries"]
    assert {"ops", "ops-before", "jwt:ada"} <= {entry["by"] for entry in entries}


def test_failures_are_counted_by_reason(sidecar: SidecarProcess) -> None:
    """Never by address or name."""
    for headers in NOBODY.values():
        send(sidecar, "GET", "/v1/clients", headers())
    send(sidecar, "DELETE", "/v1/clients/c", key(VIEWER))
    page = send(sidecar, "GET", "/metrics", {}).body.decode()
    reasons = set(re.findall(r'rate_limit_admin_auth_failures_total\{reason="([^"]*)"\}', page))
    assert reasons >= {"missing", "wrong_key", "read_only", "token_role", "token_audience", "token_expired"}
    assert reasons >= {"token_signature", "token_algorithm", "token_claims"}


def test_beyond_ten_failures_a_minute_only_what_is_valid_passes(tmp_path: Path) -> None:
    """More wrong ones are told when to come again; the operator behind the same address works on."""
    with SidecarProcess(tmp_path, CONFIG | {"admin": {"jwt": {"secret": make.SECRET}}}) as running:
        wrong = [key("wrong"), bearer(make.hs256(make.SECRET + "x"))] * 6
        replies = [send(running, "GET", "/v1/clients", headers) for headers in wrong]
        assert [reply.status for reply in replies] == [403] * 12
        assert ["retry-after" in reply.headers for reply in replies] == [False] * 10 + [True] * 2
        assert 1 <= int(replies[-1].headers["retry-after"]) <= 60
        assert replies[-1].headers["content-type"] == "application/problem+json"
        assert send(running, "GET", "/v1/clients", {}).status == 403
        assert send(running, "GET", "/v1/clients", key(VIEWER)).status == 200
        assert send(running, "GET", "/v1/clients", bearer(make.hs256())).status == 200
        assert send(running, "GET", "/health", key("wrong")).status == 200


def test_nothing_secret_is_shown_anywhere(tmp_path: Path) -> None:
    """Neither in the log, nor in an error, the configuration, the audit list or the metrics."""
    config = CONFIG | {"admin": {"jwt": {"secret": make.SECRET}}, "log_level": "DEBUG"}
    token, forged = make.hs256(), make.hs256("another-secret-of-more-than-32-bytes!")
    secrets = [ADMIN, VIEWER, make.SECRET, token, forged, "a-guessed-key", token.split(".")[2]]
    with SidecarProcess(tmp_path, config) as running:
        shown = ""
        for headers in (key("a-guessed-key"), bearer(forged), key(VIEWER), bearer(token), key(ADMIN), {}):
            for method, path in (
                ("GET", "/v1/config"),
                ("GET", "/v1/audit"),
                ("DELETE", "/v1/enforcement"),
                ("POST", "/v1/reload"),
                ("GET", "/metrics"),
                ("GET", "/none"),
            ):
                shown += str(send(running, method, path, headers))
        shown += running.log
        assert running.logged("no access to the admin port")
    for secret in secrets:
        assert secret not in shown


def test_keys_are_exchanged_by_a_reload(tmp_path: Path) -> None:
    """Both of a rotation are valid until the old one is taken away."""
    with SidecarProcess(tmp_path, CONFIG | {"admin": {"keys": KEYS}}) as running:
        assert send(running, "GET", "/v1/clients", key(ROTATED)).status == 200
        text = running.file.read_text()
        assert text.count(ROTATED) == 1
        running.file.write_text(text.replace(ROTATED, "another-key-of-the-tests"))
        assert send(running, "POST", "/v1/reload", key(ADMIN)).status == 200
        assert send(running, "GET", "/v1/clients", key(ROTATED)).status == 403
        assert send(running, "GET", "/v1/clients", key("another-key-of-the-tests")).status == 200
