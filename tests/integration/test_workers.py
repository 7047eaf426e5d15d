"""`workers: 3`: three processes, which callers, operators and Prometheus see as one."""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.parts import alive, free_port, until
from tests.raw_http import Connection
from tests.replicas import done
from tests.sidecar_process import ADMIN, SidecarProcess, command, environment
from tests.topologies import wait
from tests.worker_processes import children, one_to_each, workers

WORKERS = 3
LIMIT = 100
DIED = "a worker died"
RULE: dict[str, Any] = {
    "method": "*",
    "identifier_type": "none",
    "algorithm": "sliding_window",
    "limit": LIMIT,
    "window_seconds": 86_400,
}


def config(**more: Any) -> dict[str, Any]:
    names = ("exact", "reread", "restarted", "drained", "watched")
    rules = [{"id": name, "route": f"/{name}", **RULE} for name in names]
    edited = {"id": "edited", "route": "/*", **RULE}
    # What the API has changed stands above the file: of a client that no test edits there.
    clients = [{"id": "c", "rules": rules}, {"id": "api", "hosts": ["api.example"], "rules": [edited]}]
    listen = {"leave_seconds": 0.5}
    return {"workers": WORKERS, "listen": listen, "default_client": "c", "clients": clients, **more}


def started(folder: Path) -> SidecarProcess:
    """With all of its workers ready."""
    sidecar = SidecarProcess(folder, config())
    sidecar.start()
    wait(lambda: len(sidecar.logged("serving")) == WORKERS, "all workers serve")
    return sidecar


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    running = started(tmp_path_factory.mktemp("workers"))
    yield running
    running.stop(expected=[DIED])


@pytest.fixture
def own(tmp_path: Path) -> Iterator[SidecarProcess]:
    """One that the test ends."""
    running = started(tmp_path)
    yield running
    running.kill()


def limit_at(connection: Connection, target: str, host: str = "test.example") -> int:
    return int(connection.ask("GET", f"/authz{target}", {"Host": host}).headers["x-ratelimit-limit"])


def metric(page: bytes, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def requests_by(connection: Connection, rule: str, result: str = "allowed") -> float:
    page = done(connection.ask("GET", "/metrics")).body
    return metric(page, "rate_limit_requests_total", rule=rule, result=result)


async def test_the_limit_holds_exactly_over_all_of_them(sidecar: SidecarProcess) -> None:
    """All are asked at once; whichever is asked for metrics, it says the sum."""

    def asked(connection: Connection) -> Counter[int]:
        return Counter(connection.ask("GET", "/authz/exact").status for _ in range(LIMIT))

    with one_to_each(sidecar, sidecar.port, WORKERS) as data:
        counts = await asyncio.gather(*(asyncio.to_thread(asked, each) for each in data.values()))
    assert sum(counts, Counter()) == {200: LIMIT, 429: (WORKERS - 1) * LIMIT}
    with one_to_each(sidecar, sidecar.admin_port, WORKERS) as admin:
        for connection in admin.values():
            assert requests_by(connection, "exact") == LIMIT
            assert requests_by(connection, "exact", "rejected") == (WORKERS - 1) * LIMIT
            page = connection.ask("GET", "/metrics").body
            assert metric(page, "rate_limit_redis_latency_seconds_count") > 0
            assert metric(page, "rate_limit_store_reachable") == 1
            assert metric(page, "rate_limit_store_embedded") == 1
            assert metric(page, "rate_limit_build_info") == 1
            assert metric(page, "rate_limit_limit", rule="exact") == LIMIT


async def test_each_counts_as_a_process_of_its_own(sidecar: SidecarProcess) -> None:
    """So that their shares of a limit without the store are no more than the limit."""

    def live() -> float:
        return metric(done(sidecar.admin("GET", "/metrics")).body, "rate_limit_live_processes")

    await until(lambda: live() == WORKERS, "all are counted")


async def test_a_rule_changed_by_the_api_is_in_force_in_all(sidecar: SidecarProcess) -> None:
    """Whichever worker was told."""
    with one_to_each(sidecar, sidecar.port, WORKERS) as data:
        assert {limit_at(each, "/", "api.example") for each in data.values()} == {LIMIT}
        done(sidecar.admin("PATCH", "/v1/clients/api/policies/edited", {"limit": 77}))
        for pid, each in data.items():
            await until(lambda: limit_at(each, "/", "api.example") == 77, f"{pid} has it", seconds=3)  # noqa: B023


@pytest.mark.parametrize("told", [True, False])
async def test_an_edited_file_is_in_force_in_all(sidecar: SidecarProcess, told: bool) -> None:
    """By a SIGHUP to the first process, and by itself."""
    written = yaml.safe_load(sidecar.file.read_text())
    rule = next(rule for rule in written["clients"][0]["rules"] if rule["id"] == "reread")
    rule["limit"] += 10
    with one_to_each(sidecar, sidecar.port, WORKERS) as data:
        sidecar.file.write_text(yaml.safe_dump(written, sort_keys=False))
        if told:
            sidecar.signal(signal.SIGHUP)
        for pid, each in data.items():
            await until(lambda: limit_at(each, "/reread") == rule["limit"], f"{pid} has it")  # noqa: B023
    assert sidecar.logged("a worker died") == []


async def test_one_that_is_killed_is_started_again(sidecar: SidecarProcess) -> None:
    """Callers go on, and what it had counted stays in the sum."""
    with one_to_each(sidecar, sidecar.port, WORKERS) as data:
        for each in data.values():
            done(each.ask("GET", "/authz/restarted"))
        victim, *others = data
        os.kill(victim, signal.SIGKILL)
        for pid in others:
            done(data[pid].ask("GET", "/authz/restarted"))
    await until(lambda: len(sidecar.logged("serving")) == WORKERS + 1, "it is replaced", seconds=30)
    assert [entry["status"] for entry in sidecar.logged(DIED)] == [-signal.SIGKILL]
    with one_to_each(sidecar, sidecar.port, WORKERS) as data:
        assert victim not in data
        for each in data.values():
            done(each.ask("GET", "/authz/restarted"))
    with one_to_each(sidecar, sidecar.admin_port, WORKERS) as admin:
        for connection in admin.values():
            assert requests_by(connection, "restarted") == WORKERS + len(others) + WORKERS
            page = connection.ask("GET", "/metrics").body
            assert metric(page, "rate_limit_store_reachable") == 1
            assert metric(page, "rate_limit_config_last_reload_successful") == 1


async def test_one_that_dies_while_the_file_is_broken_comes_back_when_it_is_mended(
    own: SidecarProcess,
) -> None:
    """The others go on with the last good one: a broken file ends nobody."""
    good = own.file.read_text()
    own.file.write_text("clients: 5")
    message = "the configuration was refused; the last good one stays"
    await until(lambda: len(own.logged(message)) == WORKERS, "all have refused it")
    os.kill(workers(own)[0], signal.SIGKILL)
    await until(lambda: len(own.logged(DIED)) >= 3, "it cannot start")
    assert {entry["status"] for entry in own.logged(DIED)} == {-signal.SIGKILL, 1}
    with one_to_each(own, own.port, WORKERS - 1) as data:
        for each in data.values():
            done(each.ask("GET", "/authz/watched"))
    own.file.write_text(good)
    await until(lambda: len(own.logged("serving")) == WORKERS + 1, "it is back", seconds=30)
    with one_to_each(own, own.port, WORKERS):
        pass
    # A terminal's Ctrl-C goes to all of its session at once; it is for the first process alone.
    pids = children(own.pid)
    assert all(os.getsid(pid) != os.getsid(own.pid) for pid in pids)
    own.signal(signal.SIGINT)
    assert own.ended() == 0
    assert not any(map(alive, pids))
    assert own.errors == {DIED, message}


def metrics_folders() -> set[str]:
    return {each for each in os.listdir(tempfile.gettempdir()) if each.startswith("sidecar-metrics-")}


async def test_told_to_stop_all_answer_what_they_have_accepted(tmp_path: Path) -> None:
    """Connections that are open are served while proxies leave; then nothing is left, not even a file."""
    folders = metrics_folders()
    running = started(tmp_path)
    pids = [running.pid, *children(running.pid)]
    assert len(metrics_folders() - folders) == 1
    with one_to_each(running, running.port, WORKERS) as data:
        running.signal(signal.SIGTERM)
        message = "stopping; accepted requests are answered first"
        await until(lambda: len(running.logged(message)) == WORKERS, "all have been told")
        for each in data.values():
            reply = done(each.ask("GET", "/authz/drained"))
            assert reply.headers["connection"] == "close"
            assert each.closed()
    assert running.ended() == 0
    assert not any(map(alive, pids))
    assert metrics_folders() <= folders
    assert running.errors == set()


async def test_killed_without_a_word_it_leaves_no_process_behind(own: SidecarProcess) -> None:
    """Workers and the embedded store end when the one that started them has gone."""
    pids = children(own.pid)
    assert len(pids) == WORKERS + 1
    own.kill()
    await until(lambda: not any(map(alive, pids)), "all have ended")
    assert own.errors == set()


def served(folder: Path, listen: dict[str, str], **more: Any) -> tuple[int, str]:
    """Exit code and stderr of a sidecar that does not start."""
    file = folder / "sidecar.yaml"
    store = {"url": f"embedded:{folder}/store"}
    file.write_text(yaml.safe_dump({**config(**more), "listen": listen, "store": store}, sort_keys=False))
    ran = subprocess.run(
        command("serve", "-c", file),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("taken", ["authz", "admin"])
def test_an_address_that_is_taken_is_not_silently_shared(
    sidecar: SidecarProcess, tmp_path: Path, taken: str
) -> None:
    """Although whoever has it would share it: another sidecar with workers."""
    port = sidecar.port if taken == "authz" else sidecar.admin_port
    listen = {"authz": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"}
    code, said = served(tmp_path, {**listen, taken: f"127.0.0.1:{port}"})
    assert code == 3
    expected = f"listen.{taken}: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert said.splitlines()[-1] == expected


@pytest.mark.parametrize("address", ["unix:/run/sidecar.sock", "127.0.0.1:0"])
def test_what_cannot_be_shared_is_refused_at_its_place(tmp_path: Path, address: str) -> None:
    """By `serve` and `check` alike, naming the address, its line and the reason."""
    code, said = served(tmp_path, {"authz": address, "admin": "127.0.0.1:8001"})
    lines = (tmp_path / "sidecar.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "authz:" in text)
    assert code == 1
    assert said == (
        f"{tmp_path}/sidecar.yaml:{line}: listen.authz: expected host:port, because the 3 workers share it, "
        f"got {address!r}\n"
    )


def test_a_wrong_configuration_starts_nothing(tmp_path: Path) -> None:
    code, said = served(tmp_path, {}, enforcement="perhaps")
    assert code == 1
    assert "enforcement: expected" in said


def test_warnings_are_said_once_not_by_each_process(sidecar: SidecarProcess) -> None:
    """Of the configuration of these tests: not every request of the client meets a rule."""
    warnings = Counter(line for line in sidecar.log.splitlines() if line.startswith("warning: "))
    assert warnings
    assert set(warnings.values()) == {1}


def test_admin_changes_need_the_key_at_every_worker(sidecar: SidecarProcess) -> None:
    with one_to_each(sidecar, sidecar.admin_port, WORKERS) as admin:
        for each in admin.values():
            assert each.ask("GET", "/v1/clients").status == 403
            assert each.ask("GET", "/v1/clients", {"X-Admin-Key": ADMIN}).status == 200
