"""What our Lua action in HAProxy asks, and that nobody gets by without being asked about.

In the sidecar's place stands what answers as the test says.
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sidecar.infrastructure.recipes import Recipe, render
from tests.envoy_process import APP_PORT, SIDECAR_PORT, application, require_free
from tests.proxies.haproxy import HAPROXY, rendered, started
from tests.proxies.process import PROXY_PORT, Proxy, running
from tests.proxies.scripted import Script, scripted
from tests.raw_http import Connection, ask, request

SERVER = {"Server": "sidecar"}


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """HAProxy in front of the application, and in the sidecar's place one that allows everything at first."""
    require_free(PROXY_PORT, SIDECAR_PORT, APP_PORT)
    with application(), scripted() as script, running(HAPROXY, tmp_path):
        script.answers(200, SERVER)
        yield script


def test_the_question_has_what_the_sidecar_needs_and_nothing_else(script: Script) -> None:
    """Repeated headers as they came; a login is for HAProxy to say, not for callers."""
    sent = [
        ("Host", "API.example.com:81"),
        ("X-Session-Id", "a"),
        ("X-Session-Id", "b"),
        ("Cookie", "c=1"),
        ("Cookie", "c=2"),
        ("User-Agent", "browser"),
        ("X-User-Id", "1"),
        ("X-Sidecar-Secret", "s"),
        ("X-Other", "o"),
    ]
    assert ask(PROXY_PORT, "POST", "//a/../b?x=%41&y", sent, b"body").status == 200
    line, *fields = script.heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    assert line == "GET /forward-auth HTTP/1.1"
    assert sorted(fields, key=lambda field: field.partition(":")[0]) == [
        "accept: */*",
        "cookie: c=1",
        "cookie: c=2",
        "host: sidecar",
        "user-agent: browser",
        "x-client-ip: 127.0.0.1",
        "x-forwarded-host: API.example.com:81",
        "x-forwarded-method: POST",
        "x-forwarded-uri: //a/../b?x=%41&y",
        "x-session-id: a",
        "x-session-id: b",
    ]


def test_who_names_no_browser_is_not_taken_for_haproxy(script: Script) -> None:
    """Whose HTTP client would write its own name there."""
    ask(PROXY_PORT, "GET", "/x")
    assert b"user-agent: \r\n" in script.heads[0]


@pytest.mark.parametrize(
    "target", ["/a%2fb", "/a%2Fb", "/a%5Cb", "/a\\b", "/a#b", "/caf\xc3\xa9", "/a\x7f", "/a?\x7f"]
)
def test_what_applications_read_in_two_ways_reaches_nobody(script: Script, target: str) -> None:
    reply = ask(PROXY_PORT, "GET", target)
    assert (reply.status, script.heads) == (400, [])


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", [("Cookie", "c" * 98_304)]),
        ("GET", [("Cookie", "c" * 50_000), ("X-Api-Key", "k" * 50_000)]),
        ("M" * 50_000, [("Cookie", "c" * 50_000)]),
        ("GET", [("Cookie", "c")] * 257),
        ("GET", [("Cookie", "c")] * 509),
    ],
    ids=["header", "headers", "method", "lines", "most-lines"],
)
def test_what_is_too_much_for_a_question_is_refused(
    script: Script, method: str, headers: list[tuple[str, str]]
) -> None:
    """It must not pass unasked; and so many lines would end HAProxy itself."""
    assert ask(PROXY_PORT, method, "/x", headers).status == 431
    assert script.heads == []
    assert ask(PROXY_PORT, "GET", "/x", [("Cookie", "c")] * 256).status == 200


def test_a_thousand_questions_take_one_connection(script: Script) -> None:
    """HAProxy keeps it; were they asked at once, it would be one for each at a time."""
    before = script.accepted
    with Connection(PROXY_PORT) as connection:
        for _ in range(1000):
            assert connection.ask("GET", "/x").status == 200
    print(f"\n{len(script.heads)} checks, {script.accepted - before} new connections")
    assert len(script.heads) == 1000
    assert script.accepted - before <= 1


def test_a_sidecar_that_cannot_count_is_heard(script: Script) -> None:
    """Its own 503 is the answer of a rule with `on_unavailable: deny`, also where the recipe fails open."""
    script.answers(503, SERVER | {"Cache-Control": "no-store", "Content-Type": "text/plain"}, b"cannot count")
    reply = ask(PROXY_PORT, "GET", "/x")
    assert (reply.status, reply.headers["cache-control"], reply.body) == (503, "no-store", b"cannot count")


@pytest.mark.parametrize("fail_open", [True, False], ids=["fail-open", "fail-closed"])
def test_where_no_answer_comes_the_recipe_decides_and_nobody_is_asked_twice(
    tmp_path: Path, fail_open: bool
) -> None:
    """Nobody listens; something else breaks; nonsense comes; nothing comes. Twice asked is twice charged."""
    require_free(PROXY_PORT, SIDECAR_PORT, APP_PORT)
    with application(), running(HAPROXY, tmp_path, fail_open=fail_open), Connection(PROXY_PORT) as connection:
        _expect(connection, fail_open)
        with scripted() as script:
            script.answers(500, {"Server": "something"}, b"broken")
            _expect(connection, fail_open)
            script.answer = b"nonsense\r\n\r\n"
            _expect(connection, fail_open)
            script.answering.clear()
            _expect(connection, fail_open)
            assert len(script.heads) == 3


def _expect(connection: Connection, fail_open: bool) -> None:
    reply = connection.ask("GET", "/own-limits")
    if fail_open:  # the application's own number is the only one
        assert (reply.status, reply.headers["x-ratelimit-limit"]) == (200, "77")
    else:
        assert (reply.status, reply.headers["content-type"]) == (503, "application/problem+json")
        assert json.loads(reply.body) == {"status": 503, "detail": "the rate limiter does not answer"}


def test_a_login_of_ones_own_is_told_to_the_sidecar(tmp_path: Path) -> None:
    """Set between the clearing and the question, as the recipe says."""

    def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
        for name, text in render("haproxy", Recipe()).items():
            login = "    http-request set-header X-User-Id 42\n    http-request lua.ratelimit\n"
            (directory / name).write_text(text.replace("    http-request lua.ratelimit\n", login))
        return started(program, directory)

    proxy = Proxy(name="haproxy-login", program="haproxy", command=command)
    with application(), scripted() as script, running(proxy, tmp_path):
        script.answers(200, SERVER)
        ask(PROXY_PORT, "GET", "/x", {"X-User-Id": "1"})
        assert b"x-user-id: 42\r\n" in script.heads[0]
        assert b"x-user-id: 1\r\n" not in script.heads[0]


def test_other_values_of_the_recipe_work(tmp_path: Path) -> None:
    """A pinned client, a secret, the address in X-Forwarded-For, another status, a client without a host."""
    proxy = rendered(
        client="team-a",
        secret_header="x-sidecar-secret",
        secret="it-is-a-secret",
        address_header=None,
        unavailable_status=500,
        app=f"[::1]:{APP_PORT}",
    )
    with scripted() as script, running(proxy, tmp_path, fail_open=False):
        script.answers(429, SERVER)
        assert ask(PROXY_PORT, "GET", "/x", {"X-Forwarded-For": "9.9.9.9"}).status == 429
        with Connection(PROXY_PORT) as connection:
            connection.send(request("GET", "/x", [("Host", "")]).replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert connection.answer().status == 429
        script.answers(500)
        assert ask(PROXY_PORT, "GET", "/x").status == 500
    head = script.heads[0]
    assert head.startswith(b"GET /clients/team-a/forward-auth HTTP/1.1\r\n")
    assert b"x-forwarded-for: 127.0.0.1\r\n" in head
    assert b"x-sidecar-secret: it-is-a-secret\r\n" in head
    assert b"9.9.9.9" not in head


def test_a_sidecar_at_a_unix_socket_is_asked_there(tmp_path: Path) -> None:
    with TemporaryDirectory() as directory:  # tmp_path is longer than a socket's path may be
        proxy = rendered(sidecar=f"unix:{directory}/s")
        with _Refusing(f"{directory}/s", _Refusal) as server, running(proxy, tmp_path):
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            assert ask(PROXY_PORT, "GET", "/x").status == 429
            thread.join()


class _Refusing(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class _Refusal(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline() != b"\r\n":
            pass
        self.wfile.write(b"HTTP/1.1 429 Refused\r\nServer: sidecar\r\nContent-Length: 0\r\n\r\n")
