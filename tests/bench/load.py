"""The callers: raw sockets over epoll, in a process of their own, cheap enough not to be what is measured.

`closed` keeps every connection busy: the next request goes out when the answer is there, which finds the
most that a server can do. `paced` sends by the clock, whatever the server does, and counts each request's
time from the moment it was due: a server that stalls makes all that were due meanwhile wait, and that is in
the figures.
"""

import contextlib
import gc
import multiprocessing
import os
import random
import re
import select
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

#: A paced server that is so far behind cannot keep up, and its figures would say nothing.
GIVE_UP_SECONDS = 10.0
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_END = b"\r\n\r\n"
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests that are sent one after the other, from the first again after the last."""

    port: int
    requests: Sequence[bytes]
    connections: int = 32
    seconds: float = 2.0
    #: A second, for `paced`.
    rate: float = 0.0
    #: Ends a closed load before its time: so many answers.
    answers: int | None = None


@dataclass
class Outcome:
    """What came back. Times are in seconds, in the order of the answers."""

    seconds: float = 0.0
    statuses: Counter[bytes] = field(default_factory=Counter)
    #: From when each was due; when it was answered.
    latencies: list[float] = field(default_factory=list)
    #: How long after its time each went out: the generator's own delay, and waiting for a free connection.
    late: list[float] = field(default_factory=list)

    @property
    def answers(self) -> int:
        return self.statuses.total()

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds


def apart(cores: Iterable[int], work: Callable[[Load], Outcome], load: Load) -> Outcome:
    """`closed` or `paced`, in a process of its own on these cores."""
    mine, others = _fork.Pipe(duplex=False)

    def run() -> None:
        os.sched_setaffinity(0, cores)
        gc.freeze()
        others.send(work(load))

    process = _fork.Process(target=run)
    process.start()
    others.close()
    try:
        outcome: Outcome = mine.recv()
    except EOFError:
        raise RuntimeError("the load could not be made, see above") from None
    finally:
        process.join()
    return outcome


def closed(load: Load) -> Outcome:
    """As many as the connections can take."""
    outcome = Outcome()
    with _connected(load) as (poll, sockets):
        todo = _cycle(load.requests)
        begun = time.perf_counter()
        end, most = begun + load.seconds, load.answers or sys.maxsize
        waiting = set(sockets[:most])
        for fd in waiting:
            os.write(fd, next(todo))
        sent = len(waiting)
        for fd, answer in _answers(poll, waiting):
            outcome.statuses[answer[9:12]] += 1
            if time.perf_counter() < end and sent < most:
                os.write(fd, next(todo))
                sent += 1
            else:
                waiting.discard(fd)
        outcome.seconds = time.perf_counter() - begun
    return outcome


def paced(load: Load) -> Outcome:
    """`load.rate` a second, at moments of their own as independent callers have them (a Poisson process)."""
    _wake_in_time()
    outcome = Outcome()
    with _connected(load) as (poll, sockets):
        todo, free, due_of = _cycle(load.requests), deque(sockets), dict.fromkeys(sockets, 0.0)
        begun = time.perf_counter() + 0.01
        dues = deque(_moments(load, begun))
        partial: dict[int, bytes] = {}
        while dues or len(free) < len(sockets):
            now = time.perf_counter()
            while dues and free and dues[0] <= now:
                fd, due = free.popleft(), dues.popleft()
                os.write(fd, next(todo))
                due_of[fd] = due
                outcome.late.append(now - due)
                now = time.perf_counter()
            _wait(poll, dues[0] - now if dues and free else 1.0)
            for fd, answer in _whole(poll, 0, partial):
                outcome.latencies.append(time.perf_counter() - due_of[fd])
                outcome.statuses[answer[9:12]] += 1
                free.append(fd)
            if now - begun > load.seconds + GIVE_UP_SECONDS:
                raise RuntimeError(f"{load.rate:,.0f} a second are more than port {load.port} can take")
        outcome.seconds = time.perf_counter() - begun
    return outcome


def _moments(load: Load, begun: float) -> Iterator[float]:
    chance, at = random.Random(7), begun
    while (at := at + chance.expovariate(load.rate)) < begun + load.seconds:
        yield at


def _cycle(requests: Sequence[bytes]) -> Iterator[bytes]:
    while True:
        yield from requests


@contextmanager
def _connected(load: Load) -> Iterator[tuple[select.epoll, list[int]]]:
    with contextlib.ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        fds = []
        for _ in range(load.connections):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", load.port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            poll.register(connection, select.EPOLLIN)
            fds.append(connection.fileno())
        yield poll, fds


def _answers(poll: select.epoll, waiting: set[int]) -> Iterator[tuple[int, bytes]]:
    """Every answer, until nobody waits for one."""
    partial: dict[int, bytes] = {}
    while waiting:
        yield from _whole(poll, GIVE_UP_SECONDS, partial)


def _whole(poll: select.epoll, seconds: float, partial: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """The answers that are complete by now; what there is of others is kept in `partial`."""
    ready = poll.poll(seconds)
    if not ready and seconds:
        raise RuntimeError("no answer")
    for fd, _ in ready:
        if not (read := os.read(fd, 65536)):
            raise RuntimeError("the server closed a connection")
        answer = partial.pop(fd, b"") + read
        if _is_whole(answer):
            yield fd, answer
        else:
            partial[fd] = answer


def _is_whole(answer: bytes) -> bool:
    if answer.endswith(_END):
        return True
    head, end, body = answer.partition(_END)
    return bool(end) and (found := _LENGTH.search(head)) is not None and len(body) >= int(found[1])


def _wait(poll: select.epoll, seconds: float) -> None:
    """Until something came or the time is over, exactly: epoll's own timeout is in whole milliseconds."""
    if seconds > 0:
        select.select([poll], [], [], seconds)


def _wake_in_time() -> None:
    """The kernel may wake a process 50 µs late, to save energy; not this one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text("1000")


def percentile(values: Sequence[float], part: float) -> float:
    """The value that this part of them is not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def expect(outcome: Outcome, status: bytes) -> Outcome:
    """The outcome, if it is of such answers alone."""
    if set(outcome.statuses) - {status}:
        raise RuntimeError(f"expected {status!r} alone, got {dict(outcome.statuses)}")
    return outcome


def request(target: str, number: int, **more: str) -> bytes:
    """What Envoy asks, about a caller with this number."""
    headers = {
        "host": "api.example.com",
        "content-length": "0",
        "x-request-id": f"5e1f7a0c-6d2b-4b7e-9a51-{number:012d}",
        "x-session-id": f"session-{number}",
        "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)",
        "x-client-ip": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "x-envoy-internal": "true",
        "x-envoy-expected-rq-timeout-ms": "250",
    } | more
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode()
