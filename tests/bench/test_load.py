"""The callers of the benchmark: what they count, and from when."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.bench.cases import Callers
from tests.bench.load import Load, closed, expect, paced, percentile, request
from tests.bench.report import spread, table

ALLOWED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}"


@contextmanager
def server(answer: Callable[[int], bytes]) -> Iterator[int]:
    """One connection; `answer` is asked with the number of the request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                number = 0
                while connection.recv(65536):
                    connection.sendall(answer(number))
                    number += 1

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def load(port: int, **more: float) -> Load:
    return Load(port=port, requests=[request("/", 1)], connections=1, **more)  # type: ignore[arg-type]


def test_a_stall_is_in_the_waits_of_all_that_were_due_meanwhile() -> None:
    """Requests are timed from when they were due, not from when a connection was free for them."""

    def stalling(number: int) -> bytes:
        if number == 0:
            time.sleep(0.3)
        return ALLOWED

    with server(stalling) as port:
        outcome = paced(load(port, rate=200.0, seconds=0.2))
    assert outcome.answers > 10
    assert min(outcome.latencies) > 0.05


def test_a_flood_ends_after_so_many_answers_and_counts_their_statuses() -> None:
    """Answers with a body are read to its end."""
    with server(lambda number: REFUSED if number % 2 else ALLOWED) as port:
        outcome = closed(load(port, seconds=30.0, answers=10))
    assert outcome.statuses == {b"200": 5, b"429": 5}
    with pytest.raises(RuntimeError, match="429"):
        expect(outcome, b"200")


def test_many_callers_are_all_different_and_all_asked() -> None:
    """A stride through their numbers meets each once."""
    assert len(set(Callers(20_000))) == 20_000
    assert b"x-session-id: session-2\r\n" in Callers(3)[2]


def test_figures_are_medians_with_the_middle_half_of_the_rounds() -> None:
    """One slow round changes neither."""
    assert spread([1.0, 2.0, 3.0, 4.0, 90.0]) == "3.0 (2.0–4.0)"
    assert percentile(range(1, 101), 0.99) == 100
    assert table(["", "n"], [["a", "1"]]) == "|    |  n |\n| -- | -: |\n| a  |  1 |"
