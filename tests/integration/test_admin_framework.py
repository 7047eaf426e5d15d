"""What aiohttp would answer by itself on the admin port: ours in form, and only for those who have a key."""

import socket
from collections.abc import Iterator

import pytest

from tests.raw_http import ask
from tests.sidecar_process import ADMIN, SidecarProcess

JUNK = "junk-of-a-stranger"
#: Method, target and headers, and what somebody with a key is answered.
CASES = [
    ("GET", f"/{JUNK}", {}, 404),
    ("GET", f"/v1/clients/a/b/c/{JUNK}", {}, 404),
    ("GET", f"//{JUNK}//", {}, 404),
    ("OPTIONS", "*", {}, 404),
    ("PROPFIND", "/v1/clients", {}, 405),
    ("POST", "/docs", {}, 405),
    ("DELETE", "/openapi.json", {}, 405),
    ("GET", "/v1/clients", {"Expect": JUNK}, 417),
    ("GET", f"/{JUNK}", {"Expect": JUNK}, 417),
    ("OPTIONS", "*", {"Expect": JUNK}, 417),
]


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), {}) as running:
        yield running


@pytest.mark.parametrize(("method", "target", "headers", "status"), CASES)
def test_its_answers_are_problems_that_repeat_nothing(
    sidecar: SidecarProcess, method: str, target: str, headers: dict[str, str], status: int
) -> None:
    """As problem+json, without anything of the request."""
    reply = ask(sidecar.admin_port, method, target, {"X-Admin-Key": ADMIN, **headers})
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert reply.json["status"] == status
    assert JUNK.encode() not in reply.body
    assert ("allow" in reply.headers) is (status == 405)


@pytest.mark.parametrize("key", [None, "wrong-key"])
@pytest.mark.parametrize(("method", "target", "headers", "status"), CASES)
def test_who_has_no_key_learns_nothing(
    sidecar: SidecarProcess, method: str, target: str, headers: dict[str, str], status: int, key: str | None
) -> None:
    """Whatever it would be: 403, also for one who goes on guessing. The page is there for everybody."""
    sent = headers | ({"X-Admin-Key": key} if key else {})
    reply = ask(sidecar.admin_port, method, target, sent)
    assert reply.status == (405 if target == "/docs" else 403)
    assert reply.headers["content-type"] == "application/problem+json"
    assert JUNK.encode() not in reply.body


def test_head_is_answered_wherever_get_is(sidecar: SidecarProcess) -> None:
    """The same headers, no body."""
    for path in ("/health", "/ready", "/docs", "/openapi.json", "/v1/clients", "/v1/config", "/v1/audit"):
        got, head = sidecar.admin("GET", path), sidecar.admin("HEAD", path)
        assert (head.status, head.body) == (got.status, b"")
        assert head.headers["content-type"] == got.headers["content-type"]


def test_a_body_of_more_than_a_mebibyte_is_a_413(sidecar: SidecarProcess) -> None:
    """For those who have a key; nothing of it is repeated."""
    body = b'{"id": "' + JUNK.encode() * 65536 + b'"}'
    reply = sidecar.admin("POST", "/v1/clients", body)
    assert (reply.status, reply.headers["content-type"]) == (413, "application/problem+json")
    assert JUNK.encode() not in reply.body


def test_a_caller_that_waits_before_its_body_is_told_to_go_on(sidecar: SidecarProcess) -> None:
    """With a key: 100, then the answer. Without one: 403 at once, and the body is never asked for."""
    head = "POST /v1/clients HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 12\r\n"
    with socket.create_connection(("127.0.0.1", sidecar.admin_port), timeout=10) as known:
        known.sendall(f"{head}X-Admin-Key: {ADMIN}\r\n\r\n".encode())
        assert known.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        known.sendall(b'{"id":"wai"}')
        assert known.recv(1000).startswith(b"HTTP/1.1 201 Created\r\n")
    with socket.create_connection(("127.0.0.1", sidecar.admin_port), timeout=10) as stranger:
        stranger.sendall(f"{head}\r\n".encode())
        assert stranger.recv(1000).startswith(b"HTTP/1.1 403 Forbidden\r\n")


def test_what_is_no_http_is_a_400_and_nothing_for_the_log(sidecar: SidecarProcess) -> None:
    """Anybody may send it."""
    for sent in (b"GET / HTTP/1.1\r\nX: \x00junk\r\n\r\n", b"junk\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", sidecar.admin_port), timeout=10) as stranger:
            stranger.sendall(sent)
            answer = stranger.recv(1000)
        assert b" 400 Bad Request\r\n" in answer
        assert b"Content-Type: application/problem+json\r\n" in answer
        assert b"junk" not in answer
    assert "Traceback" not in sidecar.log
