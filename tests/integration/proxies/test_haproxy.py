"""HAProxy with its recipe, a real sidecar and an application: what is HAProxy's own beside the matrix."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxies import forward_auth
from tests.proxies.checks import charged
from tests.proxies.haproxy import rendered
from tests.proxies.lab import BY_ADDRESS, LIMITED, Lab, a_session, lab

CONFIG: dict[str, Any] = {"response": {"ietf_headers": True}, **forward_auth.CONFIG}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The IETF's headers too, for which the recipe has two lines more."""
    with lab(rendered(ietf_headers=True), tmp_path_factory.mktemp("haproxy"), config=CONFIG) as running:
        yield running


def test_a_refusal_is_handed_on_whole(laboratory: Lab) -> None:
    """Every header that the sidecar sends but its name, and its body, to the letter; HEAD gets no body."""
    session = a_session() | {"X-Request-Id": "mine"}
    with laboratory.connect() as connection:
        for status in (200, 200, 429):
            assert connection.ask("GET", LIMITED, session).status == status
        # The sidecar has it from its memory from now on.
        refused = connection.ask("GET", LIMITED, session)
        head = connection.ask("HEAD", LIMITED, session)
        forwarded = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": LIMITED, "X-Client-Ip": "127.0.0.1"}
        own = laboratory.sidecar.ask("GET", "/forward-auth", session | forwarded)
    changing = ("date", "server", "retry-after", "x-ratelimit-reset", "ratelimit", "connection")
    kept = {name: value for name, value in own.headers.items() if name not in changing}
    assert (refused.status, refused.body, head.status) == (own.status, own.body, 429)
    assert {name: refused.headers[name] for name in kept} == kept
    assert set(refused.headers) == set(head.headers) == set(own.headers) - {"server"}
    assert (kept["x-request-id"], kept["cache-control"]) == ("mine", "no-store")
    assert kept["content-type"] == "application/problem+json"
    assert {"retry-after", "x-ratelimit-reset", "ratelimit", "ratelimit-policy"} <= set(refused.headers)


def test_other_refusals_keep_their_status(laboratory: Lab) -> None:
    """A rule that blocks, and one with a status, a body and a content type of its own."""
    forward_auth.check_other_refusals(laboratory)


def test_the_sidecars_numbers_replace_the_applications(laboratory: Lab) -> None:
    """One limit, ours, and the IETF's headers beside it."""
    headers = laboratory.ask("GET", "/own-limits", a_session()).headers
    assert (headers["x-app"], headers["x-ratelimit-limit"]) == ("yes", "1000")
    assert headers["ratelimit-policy"].startswith('"all";q=1000;w=')
    assert headers["ratelimit"].startswith('"all";r=999;t=')


def test_a_caller_cannot_choose_its_address(laboratory: Lab) -> None:
    """And the application hears of no address, login or target but those that HAProxy saw."""
    names = ("X-Forwarded-For", "X-Client-Ip", "X-Real-IP", "Forwarded", "X_Forwarded_For", "X-Forwarded-Uri")
    more = ("X-Original-URI", "X-Forwarded-Host", "X-Forwarded-Method", "X-User-Id", "X-Forwarded.For")
    forged = [dict.fromkeys((*names, *more), f"9.9.9.{n}") for n in range(4)]
    replies = [laboratory.ask("GET", BY_ADDRESS, a_session() | headers) for headers in forged]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert b"9.9.9." not in replies[0].body
    assert b"x-forwarded-for: 127.0.0.1\r\n" in replies[0].body


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        ("GET", "/x", {}, None),
        ("HEAD", "/x", {}, None),
        ("OPTIONS", "*", {}, None),
        ("PROPFIND", "/x", {}, None),
        ("GET", "http://test.example", {}, None),
        ("GET", "http://test.example//x?y=/closed", {}, None),
        ("GET", "/tea/../x", {"Expect": "foo"}, None),
        ("GET", "/x", {"User-Agent": "\xff\xfe"}, None),
        ("GET", "/x", {f"X-Header-{n}": "v" * 20 for n in range(200)}, None),
        ("GET", "/x", {"Cookie": "c" * 97_000}, None),
        ("POST", "/" + "x" * 60_000, {}, b"x" * 2_000_000),
    ],
)
def test_every_request_is_charged_once(
    laboratory: Lab, method: str, target: str, headers: dict[str, str], body: bytes | None
) -> None:
    """By the catch-all rule."""
    session = a_session()
    reply = laboratory.ask(method, target, session | headers, body)
    assert (reply.status, reply.headers["x-app"]) == (200, "yes")
    assert charged(laboratory, session) == 1
