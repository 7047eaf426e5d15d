"""Log lines: what is in them, what is not, and how many there are."""

import hashlib
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from sidecar.domain.decision import Reason
from sidecar.domain.request import RequestMetadata
from sidecar.infrastructure.telemetry import logs
from sidecar.infrastructure.telemetry.logs import JsonFormatter, RefusalLog, Sampler
from tests.decisions import allowed, check, refused, without_numbers

REQUEST = RequestMetadata(method="GET", target="/secret?token=secret", session_id="secret", request_id="id-1")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def record(message: str = "said", *arguments: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("sidecar.x", logging.WARNING, "file.py", 1, message, arguments, None)
    made.created = datetime(2024, 1, 15, 10, tzinfo=UTC).timestamp() + 0.123
    made.__dict__.update(extra)
    return made


def line(of: logging.LogRecord, **always: str) -> dict[str, Any]:
    text = JsonFormatter(**always).format(of)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def test_a_line_is_one_object_with_time_level_logger_message_and_extras() -> None:
    """In that order; what is always said comes before what this one adds."""
    of = record("%d of %s", 3, "ten", rule="r", not_logged=0)
    assert list(line(of, app_env="production").items()) == [
        ("time", "2024-01-15T10:00:00.123+00:00"),
        ("level", "WARNING"),
        ("logger", "sidecar.x"),
        ("message", "3 of ten"),
        ("app_env", "production"),
        ("rule", "r"),
        ("not_logged", 0),
    ]


def test_line_breaks_and_values_that_json_has_not_stay_within_the_line() -> None:
    """Nobody writes a second line into the log by sending one."""
    assert line(record('a\nb"c', value={"x"}, text="d\r\ne\u2028"))["message"] == 'a\nb"c'
    assert line(record(value=Reason))["value"] == str(Reason)


def test_an_exception_is_part_of_its_line() -> None:
    """With its traceback, escaped."""
    of = record()
    try:
        int("broken")
    except ValueError:
        of.exc_info = sys.exc_info()
    assert "ValueError: invalid literal" in line(of)["exception"]


def test_one_event_a_second_is_let_through_with_the_number_held_back() -> None:
    """The first at once; a flood of a million is one line a second."""
    clock = Clock()
    sampler = Sampler(clock)
    assert sampler.let_through() == 0
    assert [sampler.let_through() for _ in range(1000)] == [None] * 1000
    clock.now += 0.999
    assert sampler.let_through() is None
    clock.now += 0.001
    assert sampler.let_through() == 1001
    assert sampler.let_through() is None
    clock.now += 3600
    assert sampler.let_through() == 1


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log of a second that does not end."""
    monkeypatch.setattr(logs, "Sampler", lambda: Sampler(Clock()))
    caplog.set_level(logging.INFO, "sidecar.decisions")
    return caplog


def said(lines: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    plain = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
    return [{k: v for k, v in each.__dict__.items() if k not in plain} for each in lines.records]


def test_a_refusal_names_rule_client_reason_request_and_eight_digits_of_who(
    lines: pytest.LogCaptureFixture,
) -> None:
    """Nothing of the session itself, the target or the headers."""
    RefusalLog().decided(REQUEST, refused(of=check(identifier="=secret")))
    assert said(lines) == [
        {
            "reason": "quota_exceeded",
            "client": "c",
            "rule": "r",
            "identifier": hashlib.sha256(b"secret").hexdigest()[:8],
            "request_id": "id-1",
            "not_logged": 0,
        }
    ]
    assert "secret" not in repr(lines.records[0].__dict__)


def test_a_flood_of_refusals_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    """Whatever is refused, for whatever reason; allowed requests are no line at all."""
    log = RefusalLog()
    for _ in range(500):
        log.decided(REQUEST, allowed())
        log.decided(REQUEST, refused())
        log.decided(REQUEST, without_numbers(Reason.BLOCKED, allow=False, rule_id="b"))
    assert len(lines.records) == 1


def test_a_refusal_without_numbers_is_a_line_without_who(lines: pytest.LogCaptureFixture) -> None:
    """A blocked request was counted for nobody."""
    RefusalLog().decided(REQUEST, without_numbers(Reason.BLOCKED, allow=False, rule_id="b"))
    assert (said(lines)[0]["identifier"], said(lines)[0]["reason"]) == (None, "blocked")


def test_an_identifier_of_any_characters_can_be_told(lines: pytest.LogCaptureFixture) -> None:
    """A lone surrogate is no reason for a request to fail."""
    RefusalLog().decided(REQUEST, refused(of=check(identifier="=\udcff")))
    assert len(said(lines)[0]["identifier"]) == 8


def test_unreadable_addresses_are_warned_of_beside_refusals(lines: pytest.LogCaptureFixture) -> None:
    """Once a second too, and a flood of refusals does not hide it."""
    log = RefusalLog()
    log.decided(REQUEST, refused())
    for _ in range(100):
        log.unreadable_address()
    assert [each.levelname for each in lines.records] == ["INFO", "WARNING"]
    assert "client_ip.header" in lines.records[1].message


def test_who_was_not_let_in_and_what_was_not_said_is_one_line_a_second_each(
    lines: pytest.LogCaptureFixture,
) -> None:
    """With where from and why; one flood does not hide another."""
    log = RefusalLog()
    for _ in range(100):
        log.peer_refused("peer", "192.0.2.1")
        log.unreadable_target("nginx")
        log.unreadable_address()
    assert [each.levelname for each in lines.records] == ["WARNING"] * 3
    assert said(lines) == [
        {"reason": "peer", "peer": "192.0.2.1", "not_logged": 0},
        {"dialect": "nginx", "not_logged": 0},
        {"not_logged": 0},
    ]


def test_set_up_sends_json_to_stdout_from_the_level_up(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing to stderr, which is for people at a terminal."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    try:
        logs.set_up("WARNING", "test")
        logging.getLogger("sidecar.x").info("no")
        logging.getLogger("sidecar.x").warning("yes")
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
    out, err = capsys.readouterr()
    assert (json.loads(out)["message"], json.loads(out)["app_env"], err) == ("yes", "test", "")


def test_failures_at_the_admin_port_are_one_line_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why and from where; a flood of them is counted and not written."""
    clock = Clock()
    monkeypatch.setattr(logs, "Sampler", lambda: Sampler(clock))
    log = logs.AccessLog()
    for _ in range(500):
        log.failed("wrong_key", "192.0.2.1")
    clock.now += 1
    log.failed("token_expired", "192.0.2.2")
    assert said(caplog) == [
        {"reason": "wrong_key", "address": "192.0.2.1", "not_logged": 0},
        {"reason": "token_expired", "address": "192.0.2.2", "not_logged": 499},
    ]
