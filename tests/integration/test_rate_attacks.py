"""The attacks that the per-user, per-endpoint API was designed against, by their numbers there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.rate_calls import PROBLEM, assert_names_endpoint, check, check_body, count, new_user, reset, status
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """With nothing configured: 10 in 60 seconds."""
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), {}) as running:
        yield running


@pytest.fixture
def user() -> str:
    return new_user()


def test_atk_01_a_missing_user_is_400(sidecar: SidecarProcess) -> None:
    """With a message that says what is missing; for both calls."""
    for reply in (check(sidecar, None), sidecar.ask("GET", "/rate/status?endpoint=x")):
        assert (reply.status, reply.headers["content-type"]) == (400, PROBLEM)
        assert "X-User-Id" in reply.json["detail"]


def test_atk_02_an_empty_endpoint_is_422(sidecar: SidecarProcess, user: str) -> None:
    """It names no endpoint."""
    assert_names_endpoint(check(sidecar, user, ""))


def test_atk_03_an_endpoint_of_129_characters_is_422(sidecar: SidecarProcess, user: str) -> None:
    """128 are the most, in characters, not in bytes."""
    assert_names_endpoint(check(sidecar, user, "x" * 129))
    assert_names_endpoint(check(sidecar, user, "é" * 129))
    assert_names_endpoint(status(sidecar, user, "x" * 129))
    for longest in ("x" * 128, "😀" * 128):
        assert check(sidecar, user, longest).status == 200
        assert count(sidecar, user, longest) == 1


@pytest.mark.parametrize(
    "endpoint",
    [
        "'; DROP TABLE rate_events;--",
        "' OR '1'='1",
        'x"; FLUSHALL',
        "x\r\nFLUSHALL\r\n",
        "*",
        "}:check:*",
        "redis.call('FLUSHALL')",
        "\0",
    ],
)
def test_atk_04_an_injection_in_the_endpoint_is_only_text(
    sidecar: SidecarProcess, user: str, endpoint: str
) -> None:
    """It is counted under its own name, and touches nothing else."""
    check(sidecar, user, "other")
    assert [check(sidecar, user, endpoint).json["remaining"] for _ in range(2)] == [9, 8]
    assert (count(sidecar, user, endpoint), count(sidecar, user, "other")) == (2, 1)
    assert reset(sidecar, user, f"?endpoint={quote(endpoint, safe='')}").json == {"deleted": 2}
    assert count(sidecar, user, "other") == 1


def test_atk_05_a_reset_without_a_key_is_403(sidecar: SidecarProcess, user: str, tmp_path: Path) -> None:
    """Nothing is forgotten; and without any configured key nobody may."""
    check(sidecar, user)
    reply = reset(sidecar, user, key=None)
    assert (reply.status, reply.headers["content-type"]) == (403, PROBLEM)
    assert count(sidecar, user) == 1
    with SidecarProcess(tmp_path, {"admin": {"keys": []}}) as closed:
        assert [reset(closed, user, key=key).status for key in (None, "", ADMIN)] == [403] * 3


@pytest.mark.parametrize("key", ["", "wrong", ADMIN[:-1], ADMIN + "x", ADMIN.upper(), VIEWER, "é", "0"])
def test_atk_06_a_reset_with_a_wrong_key_is_403(sidecar: SidecarProcess, user: str, key: str) -> None:
    """A key that may only read is one of them."""
    check(sidecar, user)
    assert reset(sidecar, user, key=key).status == 403
    assert count(sidecar, user) == 1


def test_atk_07_a_negative_user_in_the_path_is_404(sidecar: SidecarProcess) -> None:
    """As problem+json."""
    reply = reset(sidecar, "-1")
    assert (reply.status, reply.headers["content-type"]) == (404, PROBLEM)


def test_atk_08_user_zero_in_the_path_is_404(sidecar: SidecarProcess) -> None:
    """However many zeros."""
    assert [reset(sidecar, written).status for written in ("0", "00", "-0")] == [404] * 3


def test_atk_09_a_user_that_is_no_number_is_404(sidecar: SidecarProcess) -> None:
    """Whatever follows or precedes the digits."""
    written = ("abc", "1abc", "abc1", "1.5", "0x1", "1%00", "1;2", "%D9%A1%D9%A2", "*")
    assert [reset(sidecar, each).status for each in written] == [404] * len(written)


def test_atk_10_a_status_without_endpoint_is_422(sidecar: SidecarProcess, user: str) -> None:
    """Or with an empty one."""
    for query in ("", "?", "?endpoint", "?endpoint=", "?other=x"):
        assert_names_endpoint(sidecar.ask("GET", f"/rate/status{query}", {"X-User-Id": user}))


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"endpoint=x"])
def test_atk_11_a_check_without_a_body_is_400(sidecar: SidecarProcess, user: str, body: bytes | None) -> None:
    """Or with one that is no JSON object."""
    reply = check_body(sidecar, user, body)
    assert (reply.status, reply.headers["content-type"]) == (400, PROBLEM)


@pytest.mark.parametrize("body", [{}, {"endpoint": None}, {"endpoint": 7}, {"endpoint": ["x"]}])
def test_atk_12_a_body_without_an_endpoint_is_422(sidecar: SidecarProcess, user: str, body: Any) -> None:
    """Or with one that is no text."""
    assert_names_endpoint(check_body(sidecar, user, json.dumps(body).encode()))
