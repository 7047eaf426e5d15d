"""What a client of each real proxy sees: each scenario says what it saw, and what it should have been."""

import base64
import os
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.proxies.lab import LIMIT, LIMITED, SHORT, Lab, a_session
from tests.proxies.process import REFUSAL_HEADERS, Proxy
from tests.raw_http import Connection, Reply

NUMBERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
#: What this is about; of a proxy's or an application's own headers nothing is said.
DEGRADED = "X-RateLimit-Degraded"
NAMED = tuple(sorted({*REFUSAL_HEADERS, DEGRADED, "X-RateLimit-Status", "WWW-Authenticate"}))
UPLOAD = b"x" * 2_000_000
LONG_TARGET = "/" + "x" * 60_000


class Seen(NamedTuple):
    """`headers` are those of `NAMED`; `kept` is whether the next request on the connection was answered."""

    status: int
    headers: tuple[str, ...]
    kept: bool

    def __str__(self) -> str:
        named = ", ".join(self.headers) or "none of ours"
        return f"{self.status}, {named}, connection {'kept' if self.kept else 'closed'}"


def allowed(lab: Lab) -> Seen:
    with lab.connect() as connection:
        reply = connection.ask("GET", LIMITED, a_session())
        assert reply.headers["x-app"] == "yes"
        if lab.proxy.success_headers:
            _check_numbers(reply, LIMIT, LIMIT - 1)
        return _seen(connection, reply)


def refused(lab: Lab) -> Seen:
    session = a_session()
    with lab.connect() as connection:
        _use_up(connection, session)
        reply = connection.ask("GET", LIMITED, session)
        _check_refusal(lab.proxy, reply)
        return _seen(connection, reply)


def waits(lab: Lab) -> Seen:
    """Exactly as long as `Retry-After` says, and the next one passes."""
    session = a_session()
    with lab.connect() as connection:
        assert connection.ask("GET", SHORT, session).status == 200
        refusal = connection.ask("GET", SHORT, session)
        assert (refusal.status, refusal.headers["retry-after"]) == (429, "1")
        threading.Event().wait(int(refusal.headers["retry-after"]))
        return _seen(connection, connection.ask("GET", SHORT, session))


def others_401(lab: Lab) -> Seen:
    with lab.connect() as connection:
        reply = connection.ask("GET", "/own-401", a_session())
        assert reply.headers["www-authenticate"] == 'Basic realm="app"'
        assert reply.body.startswith(b"GET /own-401 ")
        return _seen(connection, reply)


def others_403(lab: Lab) -> Seen:
    with lab.connect() as connection:
        reply = connection.ask("GET", "/own-403", a_session())
        assert reply.body.startswith(b"GET /own-403 ")
        return _seen(connection, reply)


def head(lab: Lab) -> Seen:
    with lab.connect() as connection:
        return _seen(connection, connection.ask("HEAD", LIMITED, a_session()))


def head_refused(lab: Lab) -> Seen:
    session = a_session()
    with lab.connect() as connection:
        _use_up(connection, session)
        return _seen(connection, connection.ask("HEAD", LIMITED, session))


def upload(lab: Lab) -> Seen:
    with lab.connect() as connection:
        reply = connection.ask("POST", LIMITED, a_session(), UPLOAD)
        assert reply.headers["x-app-received"] == str(len(UPLOAD))
        return _seen(connection, reply)


def upload_refused(lab: Lab) -> Seen:
    session = a_session()
    with lab.connect() as connection:
        _use_up(connection, session)
        return _seen(connection, connection.ask("POST", LIMITED, session, UPLOAD))


def websocket(lab: Lab) -> Seen:
    """A real one: after the handshake a frame comes back. (The connection is its own to the end.)"""
    with lab.connect() as connection:
        reply = connection.ask("GET", LIMITED, a_session() | _upgrade())
        mask = os.urandom(4)
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(b"hello"))
        connection.send(b"\x81\x85" + mask + payload)
        assert connection.received(7) == b"\x81\x05hello"
        return Seen(reply.status, _named(reply), True)


def websocket_refused(lab: Lab) -> Seen:
    session = a_session()
    with lab.connect() as connection:
        _use_up(connection, session)
        reply = connection.ask("GET", LIMITED, session | _upgrade())
        _check_refusal(lab.proxy, reply)
        return _seen(connection, reply)


def long_target(lab: Lab) -> Seen:
    with lab.connect() as connection:
        reply = connection.ask("GET", LONG_TARGET, a_session())
        assert (reply.status == 200) == reply.body.startswith(f"GET {LONG_TARGET} ".encode())
        return _seen(connection, reply)


def store_away(lab: Lab) -> Seen:
    """Requests pass, uncounted; the client is told of it where it can be, the application never."""
    session = a_session()
    with lab.connect() as connection, lab.without_store():
        replies = [connection.ask("GET", LIMITED, session) for _ in range(LIMIT + 1)]
        assert [reply.status for reply in replies] == [200] * (LIMIT + 1)
        assert all(b"ratelimit" not in reply.body.lower() for reply in replies)
        said = {reply.headers.get(DEGRADED.lower()) for reply in replies}
        assert said == {"storage_unavailable" if lab.proxy.success_headers else None}
        return _seen(connection, replies[-1])


def sidecar_killed(lab: Lab) -> Seen:
    """On a connection from before; started again, the sidecar counts on."""
    session = a_session()
    with lab.connect() as connection:
        assert connection.ask("GET", LIMITED, session).status == 200
        lab.sidecar.kill()
        try:
            reply = connection.ask("GET", LIMITED, session)
            assert ("x-app" in reply.headers) == lab.fail_open
            seen = _seen(connection, reply, then=200 if lab.fail_open else lab.proxy.down_status)
        finally:
            lab.sidecar.start()
            lab.until_it_counts()
    assert [lab.ask("GET", LIMITED, session).status for _ in range(2)] == [200, 429]
    return seen


class Scenario(NamedTuple):
    name: str
    play: Callable[[Lab], Seen]
    expected: Callable[[Proxy], Seen]


def _success(status: int, *more: str) -> Callable[[Proxy], Seen]:
    def expected(proxy: Proxy) -> Seen:
        numbers = NUMBERS if proxy.success_headers else ()
        return Seen(status, tuple(sorted((*more, *numbers))), True)

    return expected


def _uncounted(proxy: Proxy) -> Seen:
    return Seen(200, (DEGRADED,) if proxy.success_headers else (), True)


def _refusal(proxy: Proxy) -> Seen:
    return Seen(429, proxy.refusal_headers, True)


def _refused_upload(proxy: Proxy) -> Seen:
    return Seen(429, proxy.refusal_headers, proxy.kept_after_refused_body)


def _refused_handshake(proxy: Proxy) -> Seen:
    return Seen(429, proxy.refusal_headers, proxy.kept_after_refused_upgrade)


def _handshake(proxy: Proxy) -> Seen:
    return Seen(101, NUMBERS if proxy.upgrade_headers else (), True)


def _long_target(proxy: Proxy) -> Seen:
    status, kept = proxy.long_target
    return Seen(status, NUMBERS if proxy.success_headers and status == 200 else (), kept)


def _down(proxy: Proxy) -> Seen:
    return Seen(proxy.down_status, (), proxy.kept_while_down)


SCENARIOS = [
    Scenario("allowed", allowed, _success(200)),
    Scenario("refused", refused, _refusal),
    Scenario("waits Retry-After", waits, _success(200)),
    Scenario("application's own 401", others_401, _success(401, "WWW-Authenticate")),
    Scenario("application's own 403", others_403, _success(403)),
    Scenario("HEAD", head, _success(200)),
    Scenario("HEAD, refused", head_refused, _refusal),
    Scenario("POST of 2 MB", upload, _success(200)),
    Scenario("POST of 2 MB, refused", upload_refused, _refused_upload),
    Scenario("WebSocket", websocket, _handshake),
    Scenario("WebSocket, refused", websocket_refused, _refused_handshake),
    Scenario("target of 60 kB", long_target, _long_target),
    Scenario("store away", store_away, _uncounted),
]
#: Those that depend on what happens without the sidecar.
FAIL_OPEN = Scenario("sidecar killed, fail-open", sidecar_killed, lambda _: Seen(200, (), True))
FAIL_CLOSED = Scenario("sidecar killed, fail-closed", sidecar_killed, _down)


def check(lab: Lab, scenario: Scenario) -> None:
    """Plays it, and prints its row."""
    seen = scenario.play(lab)
    print(f"\n{lab.proxy.name} / {scenario.name}: {seen}")
    assert seen == scenario.expected(lab.proxy), f"saw {seen}"


class Place(NamedTuple):
    """What a laboratory is for."""

    proxy: Proxy
    fail_open: bool

    def __str__(self) -> str:
        return self.proxy.name if self.fail_open else f"{self.proxy.name}, closed"


def places(proxies: Sequence[Proxy]) -> list[Place]:
    """Where everything is played, and then, from the last to the first, where only `killed` is."""
    first = [Place(proxy, proxy.can_fail_open) for proxy in proxies]
    return first + [Place(proxy, False) for proxy in reversed(proxies) if proxy.can_fail_open]


def killed(place: Place) -> Scenario:
    return FAIL_OPEN if place.fail_open else FAIL_CLOSED


def scenarios(place: Place) -> list[Scenario]:
    everything = place.fail_open == place.proxy.can_fail_open
    return [*(SCENARIOS if everything else ()), killed(place)]


def _use_up(connection: Connection, session: dict[str, str]) -> None:
    assert [connection.ask("GET", LIMITED, session).status for _ in range(LIMIT)] == [200] * LIMIT


def _upgrade() -> dict[str, str]:
    key = base64.b64encode(os.urandom(16)).decode()
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
    }


def _seen(connection: Connection, reply: Reply, *, then: int = 200) -> Seen:
    """`then` is the status of the next request on the connection, unless the proxy says that it closes it."""
    kept = reply.headers.get("connection") != "close"
    if kept:
        assert connection.ask("GET", "/next", a_session()).status == then
    else:
        assert connection.closed()
    return Seen(reply.status, _named(reply), kept)


def _named(reply: Reply) -> tuple[str, ...]:
    return tuple(name for name in NAMED if name.lower() in reply.headers)


def _check_numbers(reply: Reply, limit: int, remaining: int) -> None:
    headers = reply.headers
    assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == (str(limit), str(remaining))
    assert 3500 < int(headers["x-ratelimit-reset"]) <= 3600


def _check_refusal(proxy: Proxy, reply: Reply) -> None:
    """Its numbers, each for those headers that reach the client."""
    assert reply.status == 429
    assert reply.headers["content-type"] == proxy.refusal_type
    _check_numbers(reply, LIMIT, 0)
    assert 3500 < int(reply.headers["retry-after"]) <= 3600
    own = {"X-RateLimit-Rule": "videos", "Cache-Control": "no-store"}
    assert {name: reply.headers[name.lower()] for name in own if name in proxy.refusal_headers} == {
        name: value for name, value in own.items() if name in proxy.refusal_headers
    }
