"""NGINX with its recipe unchanged, both versions: what is asked, and what is made of every answer."""

from collections.abc import Iterator

import pytest

from sidecar.infrastructure.recipes import Recipe, render
from tests.proxies.nginx import PROXIES
from tests.proxies.process import DEPLOY, PROXY_PORT
from tests.proxies.scripted import Front, front
from tests.raw_http import Connection, Reply

NUMBERS = {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "60"}
IETF = {"RateLimit-Policy": '"r";q=10;w=60', "RateLimit": '"r";r=9;t=60'}


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: proxy.name)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The recipe that lets requests pass without the sidecar."""
    with front(request.param, tmp_path_factory.mktemp("open")) as running_front:
        yield running_front


@pytest.fixture
def nginx(opened: Front) -> Front:
    """With a script that is new."""
    opened.sidecar.heads.clear()
    opened.sidecar.answers(200, NUMBERS)
    return opened


@pytest.mark.parametrize("fail_open", [True, False])
def test_what_stands_in_deploy_is_what_the_templates_give(fail_open: bool) -> None:
    """With the defaults, each file and no other."""
    folder = DEPLOY / "nginx" if fail_open else DEPLOY / "nginx" / "fail-closed"
    files = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}
    assert files == render("nginx", Recipe(fail_open=fail_open))


def test_the_sidecar_is_asked_about_what_the_client_asked_and_nothing_that_it_claims(nginx: Front) -> None:
    """The whole head of a check: identity headers are overwritten or removed, and there is no body."""
    claims = {
        "X-Client-IP": "9.9.9.9",
        "X-Forwarded-For": "9.9.9.9",
        "x-original-uri": "/free",
        "X-Original-Method": "HEAD",
        "X-User-Id": "1",
        "X-Jwt-Payload": "{}",
        "X_Client_Ip": "9.9.9.9",
        "Connection": "close, X-Client-IP, X-Original-URI",
        "Upgrade": "h2c",
        "Expect": "100-continue",
        "TE": "trailers",
        "X-Session-Id": "s",
        "Cookie": "a=b",
    }
    with Connection(PROXY_PORT) as connection:
        connection.send(
            b"POST /a//b/../c%41;v=1?x=%2F HTTP/1.1\r\nHost: Api.Example.com:8443\r\nContent-Length: 3\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in claims.items()).encode()
            + b"\r\nabc"
        )
        statuses = [connection.answer().status, connection.answer("POST").status]
    assert statuses == [100, 200]
    line, *fields = nginx.sidecar.heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    assert line == "GET /nginx HTTP/1.1"
    assert sorted(fields) == [
        "Cookie: a=b",
        "Host: api.example.com",
        "X-Client-Ip: 127.0.0.1",
        "X-Forwarded-For: 127.0.0.1",
        "X-Original-Method: POST",
        "X-Original-URI: /a//b/../c%41;v=1?x=%2F",
        "X-Session-Id: s",
    ]


@pytest.mark.parametrize("target", ["/a%2Fb", "/a%2fb", "/a%5Cb", "/a%5cb", "/a\\b"])
def test_a_path_that_applications_disagree_about_is_refused(nginx: Front, target: str) -> None:
    """Nobody is asked. In a query it is data."""
    assert nginx.ask(target=target).status == 400
    assert nginx.sidecar.heads == []
    assert nginx.ask(target=f"/x?y={target}").status == 200


def test_the_sidecars_numbers_stand_in_the_place_of_the_applications(nginx: Front) -> None:
    """Of an application that has some, too; where the sidecar has none, the application's stay."""
    nginx.sidecar.answers(200, NUMBERS | IETF)
    for target in ("/x", "/own-limits", "/own-401", "/own-403"):
        reply = nginx.ask(target=target)
        assert shown(reply) == lower(NUMBERS | IETF)
        assert reply.headers["x-app"] == "yes"
    nginx.sidecar.answers(200)
    assert shown(nginx.ask()) == {}
    assert shown(nginx.ask(target="/own-limits")) == {"x-ratelimit-limit": "77"}
    degraded = {"X-RateLimit-Degraded": "storage_unavailable"}
    nginx.sidecar.answers(200, degraded)
    assert shown(nginx.ask()) == lower(degraded)


def test_a_refusal_is_a_whole_429_on_a_kept_connection(nginx: Front) -> None:
    """Every header and the body, also for HEAD and after a body that nobody wanted."""
    said = NUMBERS | IETF | {"Retry-After": "7", "X-RateLimit-Rule": "r"}
    nginx.sidecar.answers(403, said | {"X-RateLimit-Status": "429", "Cache-Control": "no-store"})
    with Connection(PROXY_PORT) as connection:
        replies = [
            connection.ask("GET", "/x"),
            connection.ask("POST", "/x", {}, b"x" * 2_000_000),
            connection.ask("HEAD", "/x"),
        ]
        nginx.sidecar.answers(200)
        assert connection.ask("GET", "/x").headers["x-app"] == "yes"
    for reply in replies:
        assert reply.status == 429
        assert shown(reply) == lower(said | {"Cache-Control": "no-store"})
        assert reply.headers["content-type"] == "application/problem+json"
    assert replies[0].json == replies[1].json
    assert replies[0].json == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "too many requests",
        "violated-policies": ["r"],
    }


def test_every_status_that_a_rule_may_have_reaches_the_client(nginx: Front) -> None:
    """Those that NGINX gives a meaning of its own (444, 499) among them."""
    said = {"Retry-After": "7", "X-RateLimit-Rule": "r", "Cache-Control": "no-store"}
    for status in set(range(400, 500)) - {401, 407}:
        nginx.sidecar.answers(403, said | {"X-RateLimit-Status": str(status)})
        reply = nginx.ask()
        assert (reply.status, reply.json["status"]) == (status, status)
        assert shown(reply) == lower(said)


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (403, "requests of this kind are blocked"),
        (503, "the rate limiter cannot count requests at the moment"),
        (500, "the rate limiter cannot count requests at the moment"),
        (419, "requests of this kind are blocked"),
        (400, "requests of this kind are blocked"),
    ],
)
def test_what_is_no_quota_says_so(nginx: Front, status: int, detail: str) -> None:
    """A block rule's 403, and what is configured for a store that is away."""
    said = {"X-RateLimit-Rule": "r", "Cache-Control": "no-store"}
    nginx.sidecar.answers(403, said | {"X-RateLimit-Status": str(status)})
    reply = nginx.ask()
    assert (reply.status, shown(reply)) == (status, lower(said))
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json == {"type": "about:blank", "status": status, "detail": detail}


@pytest.mark.parametrize(("said", "status"), [(400, 400), (404, 503), (429, 503), (403, 503), (302, 503)])
def test_an_answer_that_is_no_decision_lets_nothing_pass(nginx: Front, said: int, status: int) -> None:
    """A client could bring about a 400; the others are another server's, or say that NGINX may not ask."""
    nginx.sidecar.answers(said, {"Location": "/free"}, b"<html>")
    reply = nginx.ask()
    assert (reply.status, reply.json["status"]) == (status, status)
    assert (reply.json["detail"] == "the request cannot be read") == (said == 400)
    assert "location" not in reply.headers


@pytest.mark.parametrize("said", [500, 501, 502, 503, 504])
def test_a_sidecar_that_fails_lets_requests_pass(nginx: Front, said: int) -> None:
    """On a connection that is kept, with the application's own answer."""
    nginx.sidecar.answers(said, {}, b"oops")
    with Connection(PROXY_PORT) as connection:
        for target, status in (("/x", 200), ("/own-403", 403), ("/x", 200)):
            reply = connection.ask("GET", target)
            assert (reply.status, reply.headers["x-app"], shown(reply)) == (status, "yes", {})


def test_a_sidecar_that_is_slow_lets_requests_pass(nginx: Front) -> None:
    """After a quarter of a second, which is not measured here."""
    nginx.sidecar.answering.clear()
    try:
        assert nginx.ask().headers["x-app"] == "yes"
    finally:
        nginx.sidecar.answering.set()


def test_a_check_that_got_no_answer_is_not_asked_again(nginx: Front) -> None:
    """It may have been counted; on a kept connection NGINX would by itself try once more."""
    assert shown(nginx.ask()) == lower(NUMBERS)
    nginx.sidecar.hangs_up()
    reply = nginx.ask()
    assert (reply.headers["x-app"], shown(reply), len(nginx.sidecar.heads)) == ("yes", {}, 2)


def shown(reply: Reply) -> dict[str, str]:
    """What a client sees of the limiter; nothing twice."""
    ours = ("x-ratelimit-", "ratelimit", "retry-after", "cache-control")
    return {name: value for name, value in reply.headers.items() if name.startswith(ours)}


def lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
