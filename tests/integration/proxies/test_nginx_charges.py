"""The parts of NGINX's recipe in an nginx.conf that has more in it: every request is charged once.

The sidecar is a real one. Wherever NGINX takes a request to another location of its own, it asks again
whether that one may be entered: the recipe answers that itself.
"""

import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.parts import free_port
from tests.proxies.lab import CONFIG, HOUR, LIMIT, LIMITED, Backgrounds, Lab, a_session, lab
from tests.proxies.nginx import PROXIES, run
from tests.proxies.process import DEPLOY, PROXY_PORT
from tests.raw_http import Reply, ask, without_host

LOCATION = "include ratelimit-location.conf;"
LIMIT_OF_ALL = 1000
#: Part 3 of the recipe is in one of the two.
SERVER = """
server {
    listen 127.0.0.1:PORT;
    root files;
    include ratelimit-server.conf;
    IN_SERVER
    location / { IN_LOCATION proxy_pass http://127.0.0.1:8080; }

    location /try/ { IN_LOCATION try_files $uri @application; }
    location @application { IN_LOCATION proxy_pass http://127.0.0.1:8080; }
    location /spa/ { IN_LOCATION try_files $uri /spa/index.html; }
    location /directory/ { IN_LOCATION index index.html; }

    location /accelerated/ { IN_LOCATION proxy_pass http://127.0.0.1:OTHER; }
    location /internal/ { IN_LOCATION internal; alias files/; }

    location /failing/ {
        IN_LOCATION
        proxy_intercept_errors on;
        error_page 403 = @ratelimit_refused;
        error_page 500 /sorry.html;
        proxy_pass http://127.0.0.1:OTHER;
    }

    location /rewritten/ { IN_LOCATION rewrite ^ /x last; }
    location /private/ {
        IN_LOCATION
        auth_basic "members";
        auth_basic_user_file users;
        proxy_pass http://127.0.0.1:8080;
    }
    location /nobody/ { IN_LOCATION deny all; proxy_pass http://127.0.0.1:8080; }
}
"""
FILE = """
pid nginx.pid;
error_log stderr;
events {}
http {
    include ratelimit-http.conf;
    variables_hash_max_size 2048;
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    default_type text/plain;

    server {
        listen 127.0.0.1:OTHER;
        location /accelerated/ { add_header X-Accel-Redirect /internal/sorry.html; return 200; }
        location /failing/ { return 500; }
        location /failing/forbidden { return 403; }
    }
    SERVERS
}
"""
PER_SESSION = {"identifier_type": "session_id", **HOUR}
#: Beside the laboratory's own.
MORE: list[dict[str, Any]] = [
    {"id": "closed", "route": "/closed", "mode": "block"},
    {"id": "teapot", "route": "/teapot", "limit": 1, "response": {"status": 418}, **PER_SESSION},
    {"id": "strict", "route": "/strict", "limit": 9, "on_unavailable": "deny", **PER_SESSION},
]
USER = {"Authorization": f"Basic {b64encode(b'user:word').decode()}"}


@dataclass(frozen=True)
class House:
    """Two servers of one NGINX that mean the same."""

    laboratory: Lab
    #: Where part 3 stands: in each location, or once for the whole server.
    ports: Mapping[str, int]


def write(directory: Path, ports: Mapping[str, int]) -> None:
    for file in (DEPLOY / "nginx").glob("ratelimit-*.conf"):
        shutil.copy(file, directory)
    files = directory / "files"
    for name in ("sorry.html", "spa/index.html", "directory/index.html", "try/there"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text("from a file")
    (directory / "users").write_text("user:{PLAIN}word\n")
    here = SERVER.replace("IN_LOCATION", LOCATION).replace("IN_SERVER", "")
    everywhere = SERVER.replace("IN_LOCATION", "").replace("IN_SERVER", LOCATION)
    servers = here.replace("PORT", str(ports["locations"])) + everywhere.replace("PORT", str(ports["server"]))
    text = FILE.replace("SERVERS", servers).replace("OTHER", str(free_port()))
    (directory / "nginx.conf").write_text(text)


def command(program: Path, directory: Path, _: bool) -> list[str]:
    return run(program, directory, directory / "nginx.conf")


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: proxy.name)
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, backgrounds: Backgrounds
) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("nginx")
    ports = {"locations": PROXY_PORT, "server": free_port()}
    write(directory, ports)
    client = CONFIG["clients"][0]
    config = {"clients": [{**client, "rules": [*client["rules"], *MORE]}]}
    proxy = replace(request.param, command=command)
    with lab(proxy, directory, config=config, shared=backgrounds) as laboratory:
        yield House(laboratory, ports)
        assert "unexpected status" not in laboratory.log.read_text()


@pytest.mark.parametrize("where", ["locations", "server"])
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/x", 200),
        ("/try/there", 200),
        ("/try/elsewhere", 200),
        ("/spa/any/page", 200),
        ("/directory/", 200),
        ("/accelerated/x", 200),
        ("/failing/x", 500),
        ("/failing/forbidden", 403),
        ("/rewritten/x", 200),
    ],
)
def test_a_request_is_charged_once(house: House, where: str, target: str, status: int) -> None:
    """And its answer has the numbers of that charge."""
    session, port = a_session(), house.ports[where]
    reply = ask(port, "GET", target, session)
    assert reply.status == status
    assert remaining(reply) == LIMIT_OF_ALL - 1
    charged = LIMIT_OF_ALL - 1 - remaining(ask(port, "GET", "/x", session))
    print(f"\n{house.laboratory.proxy.name}: {target}: {charged}")
    assert charged == 1


def test_a_client_that_says_no_host_is_decided_like_any_other(house: House) -> None:
    """HTTP/1.0 does not ask for one; the rules are those of the default client."""
    session = a_session()
    replies = [without_host(PROXY_PORT, LIMITED, session) for _ in range(LIMIT + 1)]
    assert [reply.status for reply in replies] == [200] * LIMIT + [429]
    assert replies[-1].headers["x-ratelimit-rule"] == "videos"


def test_who_is_refused_by_others_gets_their_answer_and_no_charge(house: House) -> None:
    """A wrong password and a `deny` are NGINX's own 401 and 403, before and after the limit is used up."""
    session = a_session()
    for _ in range(2):
        wrong = ask(PROXY_PORT, "GET", "/private/x", session)
        assert (wrong.status, wrong.headers["www-authenticate"]) == (401, 'Basic realm="members"')
        denied = ask(PROXY_PORT, "GET", "/nobody/x", session)
        assert (denied.status, denied.headers["content-type"]) == (403, "text/html")
        assert b"<title>403 Forbidden</title>" in denied.body
        ours = ("retry-after", "cache-control", "x-ratelimit-limit", "x-ratelimit-rule")
        assert not any(name in reply.headers for reply in (wrong, denied) for name in ours)
        statuses = [ask(PROXY_PORT, "GET", LIMITED, session).status for _ in range(LIMIT + 1)]
    assert statuses == [429] * (LIMIT + 1)
    assert remaining(ask(PROXY_PORT, "GET", "/private/x", session | USER)) == LIMIT_OF_ALL - LIMIT - 1


def test_limited_blocked_and_unavailable_are_told_apart(house: House) -> None:
    """A rule's own status, a block rule's 403, and 503 where a rule denies without the store."""
    session = a_session()
    assert ask(PROXY_PORT, "GET", "/teapot", session).status == 200
    teapot = ask(PROXY_PORT, "GET", "/teapot", session)
    assert (teapot.status, teapot.json["status"], teapot.json["violated-policies"]) == (418, 418, ["teapot"])
    assert 3500 < int(teapot.headers["retry-after"]) <= 3600
    closed = ask(PROXY_PORT, "GET", "/closed", session)
    assert (closed.status, closed.headers["x-ratelimit-rule"]) == (403, "closed")
    assert closed.json["detail"] == "requests of this kind are blocked"
    with house.laboratory.without_store():
        strict = ask(PROXY_PORT, "GET", "/strict", session)
        assert (strict.status, strict.headers["x-ratelimit-rule"]) == (503, "strict")
        assert strict.headers["x-ratelimit-degraded"] == "storage_unavailable"
        assert strict.json["detail"] == "the rate limiter cannot count requests at the moment"
        lenient = ask(PROXY_PORT, "GET", "/x", session)
        assert (lenient.status, lenient.headers["x-ratelimit-degraded"]) == (200, "storage_unavailable")


def remaining(reply: Reply) -> int:
    return int(reply.headers["x-ratelimit-remaining"])
