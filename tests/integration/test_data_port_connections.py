"""The data port of a real sidecar: many requests on one connection, and bodies in all forms."""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.raw_http import Connection, Reply, request
from tests.sidecar_process import SidecarProcess

RULE = {"id": "everything", "route": "/*", "identifier_type": "ip", "limit": 100_000, "window_seconds": 3600}
CONFIG = {"default_client": "c", "clients": [{"id": "c", "rules": [RULE]}]}
EVALUATE = json.dumps(
    {"client_id": "c", "route": "/é", "method": "GET", "identifier": {"type": "ip", "ip": "192.0.2.1"}}
).encode()
WEBSOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), CONFIG) as running:
        yield running


@pytest.fixture
def connection(sidecar: SidecarProcess) -> Iterator[Connection]:
    with Connection(sidecar.port) as opened:
        yield opened


@pytest.fixture
def caller() -> dict[str, str]:
    """The header that makes this test a caller of its own."""
    number = uuid.uuid4().int
    return {"X-Client-IP": f"2001:db8:{number % 65536:x}:{number >> 16 & 65535:x}::1"}


def used(reply: Reply) -> int:
    """How many requests were counted, this one included."""
    assert (reply.status, reply.body) == (200, b""), reply
    return 100_000 - int(reply.headers["x-ratelimit-remaining"])


def in_step(connection: Connection, caller: dict[str, str], expected: int) -> None:
    """The next answer on the connection is that to the next request."""
    assert used(connection.ask("GET", "/authz/next", {**caller, "X-Request-ID": "next"})) == expected


def test_a_connection_is_kept_over_many_requests(connection: Connection, caller: dict[str, str]) -> None:
    """Envoy asks on few connections; closing one just being used would be an error there."""
    assert [used(connection.ask("GET", f"/authz/{n}", caller)) for n in range(150)] == [*range(1, 151)]


def test_requests_sent_at_once_are_answered_in_order(connection: Connection, caller: dict[str, str]) -> None:
    """Each once, also when there are more than the framework takes in at a time."""
    many = 300
    asked = (request("GET", f"/authz/{n}", {**caller, "X-Request-ID": f"id-{n}"}) for n in range(many))
    connection.send(b"".join(asked))
    replies = [connection.answer() for _ in range(many)]
    assert [reply.headers["x-request-id"] for reply in replies] == [f"id-{n}" for n in range(many)]
    assert [used(reply) for reply in replies] == [*range(1, many + 1)]


def test_a_head_request_has_the_headers_and_no_body(connection: Connection, caller: dict[str, str]) -> None:
    """Allowed or refused, the connection stays in step."""
    assert used(connection.ask("HEAD", "/authz/x", caller)) == 1
    assert connection.ask("HEAD", "/nowhere").status == 404
    in_step(connection, caller, 2)


@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket", "h2c", "foo, bar"])
def test_an_upgrade_is_a_request_like_any_other(
    connection: Connection, caller: dict[str, str], upgrade: str
) -> None:
    """The handshake is asked about; this connection goes on speaking HTTP."""
    assert used(connection.ask("GET", "/authz/chat", {**caller, **WEBSOCKET, "Upgrade": upgrade})) == 1
    in_step(connection, caller, 2)
    connection.send(request("GET", "/authz/a", {**caller, **WEBSOCKET}) + request("GET", "/authz/b", caller))
    assert [used(connection.answer()) for _ in range(2)] == [3, 4]


BODY = b"GET /authz/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1, 100, 2_000_000])
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS", "PROPFIND"])
def test_a_body_is_read_past(connection: Connection, caller: dict[str, str], method: str, size: int) -> None:
    """It is none of the limiter's business, whatever it holds."""
    body = (BODY * (size // len(BODY) + 1))[:size]
    assert used(connection.ask(method, "/authz/upload", caller, body)) == 1
    in_step(connection, caller, 2)


@pytest.mark.parametrize("chunks", [[], [b"x"], [BODY] * 3, [b"y" * 100_000] * 20])
def test_a_chunked_body_is_read_past(
    connection: Connection, caller: dict[str, str], chunks: list[bytes]
) -> None:
    """With its extensions and trailers."""
    connection.send(request("POST", "/authz/upload", {**caller, "Transfer-Encoding": "chunked"}))
    for chunk in chunks:
        connection.send(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk))
    connection.send(b"0\r\nTrailer: x\r\n\r\n")
    assert used(connection.answer()) == 1
    in_step(connection, caller, 2)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "nonsense", "gzip, gzip"])
def test_a_body_that_does_not_decompress_is_read_past(
    connection: Connection, caller: dict[str, str], encoding: str
) -> None:
    """Nobody asked for its content."""
    headers = {**caller, "Content-Encoding": encoding}
    assert used(connection.ask("POST", "/authz/upload", headers, b"no such thing" * 100)) == 1
    in_step(connection, caller, 2)


@pytest.mark.parametrize("odd", ["FOO", "get"])
def test_a_method_that_only_some_know_changes_nothing_about_the_connection(
    connection: Connection, caller: dict[str, str], odd: str
) -> None:
    """Requests before it and after it, with bodies, upgrades and in one piece, stay in step."""
    assert used(connection.ask("GET", "/authz/a", caller)) == 1
    assert used(connection.ask(odd, "/authz/b", caller)) == 2
    assert used(connection.ask("POST", "/authz/c", caller, BODY * 1000)) == 3
    assert used(connection.ask(odd, "/authz/d", caller, BODY)) == 4
    assert used(connection.ask("GET", "/authz/e", {**caller, **WEBSOCKET})) == 5
    connection.send(request(odd, "/authz/f", caller) + request("HEAD", "/authz/g", caller))
    assert used(connection.answer()) == 6
    assert used(connection.answer("HEAD")) == 7
    connection.send(request("GET", "/authz/h", caller) * 100)
    assert [used(connection.answer()) for _ in range(100)] == [*range(8, 108)]


def test_a_body_that_looks_like_a_request_of_an_odd_method_is_a_body(
    connection: Connection, caller: dict[str, str]
) -> None:
    """It is read past, in the same piece or in one of its own, and never answered."""
    smuggled = request("FOO", "/authz/smuggled?\xe9", caller)
    connection.send(request("POST", "/authz/a", caller, b"")[:-4].replace(b"h: 0", b"h: %d" % len(smuggled)))
    connection.send(b"\r\n\r\n")
    connection.send(smuggled)
    assert used(connection.answer()) == 1
    in_step(connection, caller, 2)
    connection.send(request("POST", "/authz/a", caller, smuggled) + request("GET", "/authz/b", caller))
    assert [used(connection.answer()) for _ in range(2)] == [3, 4]


def test_a_request_in_single_bytes_is_a_request(connection: Connection, caller: dict[str, str]) -> None:
    """However the network cuts it."""
    for byte in request("GET", "/authz/slow", caller):
        connection.send(bytes([byte]))
    assert used(connection.answer()) == 1
    in_step(connection, caller, 2)


def test_a_caller_that_hangs_up_early_disturbs_nobody(
    sidecar: SidecarProcess, connection: Connection, caller: dict[str, str]
) -> None:
    """In the middle of a head, of a body, or before its answer."""
    for cut in (b"GET /authz/x HT", request("POST", "/authz/x", caller, b"x" * 1000)[:-500]):
        with Connection(sidecar.port) as leaving:
            leaving.send(cut)
    with Connection(sidecar.port) as leaving:
        leaving.send(request("GET", "/nowhere") * 100)
    assert connection.ask("GET", "/authz/x", caller).status == 200


def test_who_has_nothing_more_to_say_is_answered(connection: Connection, caller: dict[str, str]) -> None:
    """All that was asked, and then the connection ends."""
    connection.send(b"".join(request("GET", f"/authz/{n}", caller) for n in range(40)))
    connection.end()
    assert [used(connection.answer()) for _ in range(40)] == [*range(1, 41)]
    assert connection.closed()


def test_a_body_is_no_reason_to_lose_the_last_answer(connection: Connection, caller: dict[str, str]) -> None:
    """What was sent is read before the connection is closed: closed with something unread, it is reset."""
    headers = {**caller, "Connection": "close"}
    assert used(connection.ask("POST", "/authz/upload", headers, b"x" * 4_000_000)) == 1
    assert connection.closed()


def test_http_1_0_is_answered_and_closed_unless_it_wants_to_be_kept(
    connection: Connection, caller: dict[str, str]
) -> None:
    """As NGINX asks."""
    head = f"GET /authz/x HTTP/1.0\r\nX-Client-IP: {caller['X-Client-IP']}\r\n".encode()
    for number in (1, 2):
        connection.send(head + b"Connection: keep-alive\r\n\r\n")
        reply = connection.answer()
        assert (used(reply), reply.headers["connection"]) == (number, "keep-alive")
    connection.send(head + b"\r\n")
    reply = connection.answer()
    assert (used(reply), reply.headers["connection"]) == (3, "close")
    assert connection.closed()


def test_bodies_in_a_packet_of_their_own_never_stop_a_connection(
    connection: Connection, caller: dict[str, str]
) -> None:
    """After any number of them, requests sent together are all answered."""
    for number in range(1, 41):
        sent = request("POST", "/authz/x", caller, b"x" * 10)
        connection.send(sent[:-10])
        assert used(connection.answer()) == number
        connection.send(sent[-10:])
    connection.send(request("GET", "/authz/y", caller) * 3)
    assert [used(connection.answer()) for _ in range(3)] == [41, 42, 43]


def test_connection_close_is_obeyed(connection: Connection, caller: dict[str, str]) -> None:
    """The answer comes first."""
    assert used(connection.ask("GET", "/authz/x", {**caller, "Connection": "close"})) == 1
    assert connection.closed()


def test_evaluate_answers_100_continue_once_to_who_waits_for_it(connection: Connection) -> None:
    """And then the request, on a connection that stays in step."""
    connection.send(
        request("POST", "/v1/evaluate", {"Expect": "100-continue", "Content-Length": str(len(EVALUATE))})
    )
    assert connection.answer() == Reply(100, (), b"")
    connection.send(EVALUATE)
    answered = connection.answer()
    assert (answered.status, answered.json["allowed"]) == (200, True)
    assert connection.ask("POST", "/v1/evaluate", {}, EVALUATE).status == 200


def test_evaluate_without_a_body_says_so_also_to_who_expects_100(connection: Connection) -> None:
    """Where there is nothing to wait for, the answer is the next thing that matters."""
    connection.send(request("POST", "/v1/evaluate", {"Expect": "100-continue", "Content-Length": "0"}))
    reply = connection.answer()
    assert (reply if reply.status != 100 else connection.answer()).status == 400
    assert connection.ask("POST", "/v1/evaluate", {}, EVALUATE).status == 200


@pytest.mark.parametrize("expectation", ["foo", "100-Continue, foo", ""])
def test_evaluate_ignores_an_expectation_that_nobody_knows(connection: Connection, expectation: str) -> None:
    """Instead of the framework's 417."""
    assert connection.ask("POST", "/v1/evaluate", {"Expect": expectation}, EVALUATE).status == 200
    assert connection.ask("POST", "/v1/evaluate", {}, EVALUATE).status == 200


@pytest.mark.parametrize("cut", [1, 7, 50])
def test_evaluate_takes_a_chunked_body(connection: Connection, cut: int) -> None:
    """However it is cut, in the middle of a character too."""
    connection.send(request("POST", "/v1/evaluate", {"Transfer-Encoding": "chunked"}))
    for start in range(0, len(EVALUATE), cut):
        part = EVALUATE[start : start + cut]
        connection.send(b"%x\r\n%b\r\n" % (len(part), part))
    connection.send(b"0\r\n\r\n")
    assert connection.answer().status == 200
    assert connection.ask("POST", "/v1/evaluate", {}, EVALUATE).status == 200


@pytest.mark.parametrize(("size", "status"), [(1024 * 1024, 400), (1024 * 1024 + 1, 413), (3_000_000, 413)])
def test_evaluate_takes_a_body_of_one_mebibyte_and_no_more(
    connection: Connection, size: int, status: int
) -> None:
    """What is longer is refused without being kept, and the connection stays in step."""
    reply = connection.ask("POST", "/v1/evaluate", {}, b"x" * size)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert connection.ask("POST", "/v1/evaluate", {}, EVALUATE).status == 200


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/authz/" + "x" * 120_000, {}),
        ("/authz/x", {"Cookie": "a=" + "x" * 120_000}),
        ("/authz/x", {f"X-{n}": "y" for n in range(500)}),
        ("/authz/x" + "y" * 60_000, {f"X-{n}": "y" * 1000 for n in range(150)}),
    ],
    ids=["target", "header", "headers", "together"],
)
def test_what_proxies_pass_on_is_taken(
    connection: Connection, caller: dict[str, str], target: str, headers: dict[str, str]
) -> None:
    """128 kB for each line, 512 headers, 256 kB together: more than a proxy lets through."""
    assert used(connection.ask("GET", target, {**caller, **headers})) == 1
    in_step(connection, caller, 2)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/authz/" + "x" * 140_000, {}),
        ("/authz/x", {"Cookie": "a=" + "x" * 140_000}),
        ("/authz/x", {f"X-{n}": "y" for n in range(600)}),
        ("/authz/x", {f"X-{n}": "y" * 120_000 for n in range(10)}),
    ],
    ids=["target", "header", "headers", "together"],
)
def test_what_is_beyond_that_is_a_400(
    sidecar: SidecarProcess, caller: dict[str, str], target: str, headers: dict[str, str]
) -> None:
    """Or, where more was sent than is read, a closed connection; the next one is served."""
    with Connection(sidecar.port) as connection:
        with suppress(OSError):
            assert connection.ask("GET", target, {**caller, **headers}).status == 400
        assert connection.closed()
    assert used(sidecar.ask("GET", "/authz/x", caller)) == 1
