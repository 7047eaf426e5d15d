"""The per-user, per-endpoint API of a real sidecar with a real store: every call and every status."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.parts import StoreServer
from tests.rate_calls import PROBLEM, assert_names_endpoint, check, check_body, count, new_user, reset, status
from tests.sidecar_process import ADMIN, VIEWER, SidecarProcess

NULLS = dict.fromkeys(("limit", "remaining", "reset", "retry_after"))


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """With nothing configured: 10 in 60 seconds."""
    with SidecarProcess(tmp_path_factory.mktemp("sidecar"), {}) as running:
        yield running


@pytest.fixture
def user() -> str:
    return new_user()


def test_the_eleventh_check_is_rate_limited(sidecar: SidecarProcess, user: str) -> None:
    """Ten pass; the numbers are those of the headers, here and after the refusal."""
    replies = [check(sidecar, user) for _ in range(11)]
    assert [reply.status for reply in replies] == [200] * 10 + [429]
    assert [reply.json["remaining"] for reply in replies] == [*range(9, -1, -1), 0]
    assert {reply.headers["content-type"] for reply in replies} == {"application/json"}
    assert replies[0].json == {**NULLS, "status": "ok", "limit": 10, "remaining": 9, "reset": 60}
    refused = replies[10]
    seconds = refused.json["retry_after"]
    assert 50 < seconds <= 60
    assert list(refused.json.items()) == [
        ("status", "rate_limited"),
        ("limit", 10),
        ("remaining", 0),
        ("reset", seconds),
        ("retry_after", seconds),
    ]
    assert refused.headers["retry-after"] == refused.headers["x-ratelimit-reset"] == str(seconds)
    assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == ("10", "0")
    assert (refused.headers["x-ratelimit-rule"], refused.headers["cache-control"]) == ("check", "no-store")


def test_a_look_charges_nothing_and_is_200_at_the_limit_too(sidecar: SidecarProcess, user: str) -> None:
    """It says what a check would get."""
    assert status(sidecar, user).json == {
        **NULLS,
        "status": "ok",
        "limit": 10,
        "remaining": 10,
        "reset": 0,
        "count": 0,
    }
    check(sidecar, user)
    assert [count(sidecar, user) for _ in range(15)] == [1] * 15
    for _ in range(9):
        assert check(sidecar, user).status == 200
    looked = status(sidecar, user)
    assert (looked.status, looked.json["status"], looked.json["count"]) == (200, "rate_limited", 10)
    assert 0 < looked.json["retry_after"] <= 60
    assert "retry-after" not in looked.headers


def test_two_users_and_two_endpoints_are_counted_apart(sidecar: SidecarProcess, user: str) -> None:
    """Also where one is the beginning of the other."""
    for _ in range(10):
        check(sidecar, user, "/a")
    assert check(sidecar, user, "/a").status == 429
    for other_user, endpoint in ((user, "/a/"), (user, "/A"), (user + "0", "/a"), (user[:-1], "/a")):
        assert check(sidecar, other_user, endpoint).json["remaining"] == 9


def test_fifty_checks_at_once_admit_exactly_ten(sidecar: SidecarProcess, user: str) -> None:
    """Looking and charging are one step, so nobody slips between them."""
    with ThreadPoolExecutor(50) as pool:
        statuses = list(pool.map(lambda _: check(sidecar, user).status, range(50)))
    assert sorted(statuses) == [200] * 10 + [429] * 40
    assert count(sidecar, user) == 10


def test_a_reset_forgets_one_endpoint(sidecar: SidecarProcess, user: str) -> None:
    """And says how many requests; the next check passes."""
    endpoints = {"/full": 11, "/a|b:c": 3, "é+ %": 2}
    for endpoint, times in endpoints.items():
        for _ in range(times):
            check(sidecar, user, endpoint)
    for endpoint, deleted in (("/full", 10), ("/full", 0), ("é+ %", 2), ("/a|b:c", 3)):
        reply = reset(sidecar, user, f"?endpoint={quote(endpoint, safe='')}")
        assert (reply.status, reply.json) == (200, {"deleted": deleted})
        assert count(sidecar, user, endpoint) == 0
    assert check(sidecar, user, "/full").status == 200


def test_a_reset_forgets_all_endpoints_of_that_user_alone(sidecar: SidecarProcess, user: str) -> None:
    """More of them than one call carries; requests that no longer count are not counted as forgotten."""
    for index in range(70):
        check(sidecar, user, f"/{index}")
    check(sidecar, user, "x" * 128)
    check(sidecar, user + "0", "/1")
    assert [reset(sidecar, user).json for _ in range(2)] == [{"deleted": 71}, {"deleted": 0}]
    assert [count(sidecar, user, f"/{index}") for index in (0, 69)] == [0, 0]
    assert count(sidecar, user + "0", "/1") == 1


@pytest.mark.parametrize(
    "query", ["?endpoint=", f"?endpoint={'x' * 129}", "?endpoint=a&endpoint=b", "?endpoint=%FF"]
)
def test_a_reset_with_a_wrong_endpoint_forgets_nothing(
    sidecar: SidecarProcess, user: str, query: str
) -> None:
    """It is never taken for a reset of all."""
    check(sidecar, user)
    assert_names_endpoint(reset(sidecar, user, query))
    assert count(sidecar, user) == 1


@pytest.mark.parametrize("path", ["0", "-1", "abc", "1/2", "", "%2e%2e"])
def test_the_key_is_checked_before_the_path(sidecar: SidecarProcess, path: str) -> None:
    """Who may not reset learns nothing about what there is."""
    assert [reset(sidecar, path, key=key).status for key in (None, "wrong", VIEWER)] == [403] * 3
    assert reset(sidecar, path).status == 404


@pytest.mark.parametrize(
    ("written", "same"),
    [("01", "1"), ("0" * 200 + "1", "1"), (str(2**63 - 1), str(2**63 - 1)), (" 1 ", "1")],
)
def test_a_user_may_be_written_with_leading_zeros(sidecar: SidecarProcess, written: str, same: str) -> None:
    """It is a number; and HTTP takes the space around a header away."""
    reset(sidecar, same)
    assert check(sidecar, written).json["remaining"] == 9
    assert count(sidecar, same) == 1
    assert reset(sidecar, written.strip()).json == {"deleted": 1}


@pytest.mark.parametrize(
    "written", ["0", "-1", "+1", "1.0", "1e3", "abc", "", "1 2", "1,2", "١٢", "１", str(2**63), "9" * 5000]
)
def test_what_is_no_user_is_400_and_in_a_path_404(sidecar: SidecarProcess, written: str) -> None:
    """Digits of other scripts are none of ours, and 2^63 does not fit."""
    header = written.encode().decode("latin-1")
    for reply in (check(sidecar, header), status(sidecar, header)):
        assert (reply.status, reply.headers["content-type"]) == (400, PROBLEM)
        assert "X-User-Id" in reply.json["detail"]
    assert reset(sidecar, quote(written)).status == 404


def test_two_users_in_two_headers_are_none(sidecar: SidecarProcess) -> None:
    """Either could be the one that a proxy has verified."""
    twice = [("X-User-Id", "1"), ("X-User-Id", "2")]
    assert sidecar.ask("POST", "/rate/check", twice, b'{"endpoint": "x"}').status == 400


@pytest.mark.parametrize("space", ["%201", "1%20", "%091", "1%0A"])
def test_space_around_a_user_in_a_path_is_404(sidecar: SidecarProcess, space: str) -> None:
    """Nothing is trimmed there."""
    assert reset(sidecar, space).status == 404


@pytest.mark.parametrize(("path", "allowed"), [("/rate/check", "POST"), ("/rate/status?endpoint=x", "GET")])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
def test_another_method_is_405_and_says_which_is_meant(
    sidecar: SidecarProcess, user: str, path: str, allowed: str, method: str
) -> None:
    """Nothing is counted then."""
    if method == allowed:
        return
    reply = sidecar.ask(method, path, {"X-User-Id": user}, b'{"endpoint": "x"}' if method != "HEAD" else None)
    assert (reply.status, reply.headers["allow"]) == (405, allowed)
    assert count(sidecar, user, "x") == 0


@pytest.mark.parametrize(
    "path", ["/rate", "/rate/", "/rate/check/", "/rate/reset/1", "/clients/c/rate/check"]
)
def test_nothing_else_is_served_there(sidecar: SidecarProcess, path: str) -> None:
    """The reset above all: callers of the data port may not forget what they have used."""
    assert sidecar.ask("DELETE", path, {"X-Admin-Key": ADMIN}).status == 404
    assert sidecar.ask("POST", path, {"X-User-Id": "1"}, b'{"endpoint": "x"}').status == 404


def test_a_body_that_is_too_large_is_413(sidecar: SidecarProcess, user: str) -> None:
    """Nobody needs a mebibyte to name an endpoint."""
    assert check_body(sidecar, user, b" " * (1024 * 1024 + 1)).status == 413


def test_a_reset_is_in_the_audit_list(sidecar: SidecarProcess, user: str) -> None:
    """With who asked for it."""
    reset(sidecar, user)
    reset(sidecar, user, "?endpoint=/a|b")
    newest = sidecar.admin("GET", "/v1/audit?limit=2").json["entries"]
    told = [(entry["by"], entry["action"], entry["subject"]) for entry in newest]
    assert told == [("ops", "counters.reset", f"/rate/{user}{endpoint}") for endpoint in ("//a|b", "")]


def test_metrics_show_one_client_for_all_users(sidecar: SidecarProcess, user: str) -> None:
    """Labels never come from traffic."""
    for _ in range(11):
        check(sidecar, user)
    page = sidecar.admin("GET", "/metrics", key=None).body.decode()
    rates = [
        line for line in page.splitlines() if line.startswith('rate_limit_requests_total{client="/rate"')
    ]
    assert {line.partition("{")[2].partition("}")[0] for line in rates} == {
        'client="/rate",reason="allowed",result="allowed",rule="check"',
        'client="/rate",reason="quota_exceeded",result="rejected",rule="check"',
    }
    assert f"/rate/{user}" not in page


def test_limit_and_window_are_configured_and_the_window_slides(tmp_path: Path, user: str) -> None:
    """Waiting as long as the refusal says is enough."""
    with SidecarProcess(tmp_path, {"rate": {"limit": 2, "window_seconds": 1}}) as sidecar:
        while (replies := [check(sidecar, user) for _ in range(3)])[2].status != 429:
            pass  # slower than the window
        assert replies[2].json["limit"] == 2
        time.sleep(replies[2].json["retry_after"])
        assert check(sidecar, user).status == 200


@pytest.mark.parametrize(("on_unavailable", "expected"), [("allow", 200), ("deny", 503)])
def test_while_the_store_is_away_the_answer_is_the_configured_one(
    valkey_binary: Path, tmp_path: Path, user: str, on_unavailable: str, expected: int
) -> None:
    """Without invented numbers, never 429; a reset says that it could not."""
    with StoreServer(valkey_binary) as store:
        config = {"store": {"url": store.url, "on_unavailable": on_unavailable, "timeout_ms": 300}}
        with SidecarProcess(tmp_path, config) as sidecar:
            assert check(sidecar, user).status == 200
            store.stop()
            checked, looked = check(sidecar, user), status(sidecar, user)
            assert (checked.status, looked.status) == (expected, expected)
            if expected == 200:
                assert checked.json == {**NULLS, "status": "ok"}
                assert looked.json == {**NULLS, "status": "ok", "count": None}
            else:
                assert checked.headers["content-type"] == looked.headers["content-type"] == PROBLEM
            assert "retry-after" not in checked.headers
            assert [reset(sidecar, user, query).status for query in ("", "?endpoint=x")] == [503, 503]
