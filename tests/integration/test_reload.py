"""The main file is edited while the sidecar serves: each with what is in force after."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.edited_files import SECONDS, TAKEN_OVER, EditedSidecar, renamed_over, swapped
from tests.parts import StoreServer, until
from tests.replicas import done, limit_of
from tests.steady_load import SteadyLoad

RULE = {"id": "all", "route": "/*", "identifier_type": "none", "window_seconds": 86_400}


def clients(limit: Any) -> list[dict[str, Any]]:
    return [{"id": "c", "rules": [{**RULE, "limit": limit}]}]


@pytest.fixture
def config(store: StoreServer, key_prefix: str) -> dict[str, Any]:
    return {
        "store": {"url": store.url, "key_prefix": key_prefix},
        "default_client": "c",
        "clients": clients(1000),
    }


@pytest.fixture
def sidecar(config: dict[str, Any], tmp_path: Path) -> Iterator[EditedSidecar]:
    with EditedSidecar(tmp_path / "config", config) as running:
        yield running


async def in_force(sidecar: EditedSidecar, limit: int) -> None:
    await until(lambda: limit_of(sidecar) == limit, f"a limit of {limit} is in force", seconds=SECONDS)


async def taken_over(sidecar: EditedSidecar, times: int) -> None:
    await until(lambda: len(sidecar.logged(TAKEN_OVER)) == times, "it was read again", seconds=SECONDS)


async def test_a_swap_of_kubernetes_is_taken_over(config: dict[str, Any], tmp_path: Path) -> None:
    """Of the whole folder, by one symbolic link; again and again, the old folder deleted each time."""
    mounted = tmp_path / "mounted"
    swapped(mounted, "..2026_0", {"sidecar.yaml": "{}"})
    with EditedSidecar(mounted, config) as sidecar:
        assert limit_of(sidecar) == 1000
        for number in (1, 2, 3):
            swapped(mounted, f"..2026_{number}", {"sidecar.yaml": sidecar.text(clients=clients(number))})
            await in_force(sidecar, number)
        swapped(mounted, "..2026_4", {"sidecar.yaml": sidecar.text(clients=clients("many"))})
        await sidecar.refuses(1)
        assert limit_of(sidecar) == 3
        swapped(mounted, "..2026_5", {"sidecar.yaml": sidecar.text(clients=clients(5))})
        await in_force(sidecar, 5)
        assert sidecar.is_good()


async def test_a_file_that_an_editor_renames_over_the_old_one_is_taken_over(sidecar: EditedSidecar) -> None:
    """Several times, since each time it is another file."""
    for limit in (5, 6, 7):
        renamed_over(sidecar.file, sidecar.text(clients=clients(limit)))
        await in_force(sidecar, limit)
    assert sidecar.refusals() == []


async def test_a_file_that_is_written_in_place_is_taken_over(sidecar: EditedSidecar) -> None:
    """Even if it was looked at in the middle of it."""
    for limit in (5, 6, 7):
        sidecar.file.write_text(sidecar.text(clients=clients(limit)))
        await in_force(sidecar, limit)
    assert sidecar.is_good()


async def test_a_file_that_is_written_in_two_steps_is_taken_over_after_the_second(
    sidecar: EditedSidecar,
) -> None:
    """The first half is refused, however long it lies there; the limit of before holds meanwhile."""
    text = sidecar.text(clients=clients(5))
    with sidecar.file.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        await sidecar.refuses(1)
        assert limit_of(sidecar) == 1000
        file.write(text[len(text) // 2 :])
    await in_force(sidecar, 5)
    assert sidecar.is_good()


@pytest.mark.parametrize("left", [0, 40])
async def test_a_truncated_file_leaves_the_last_good_one_in_force(sidecar: EditedSidecar, left: int) -> None:
    """An empty one, too; the log says it once, the metric as long as it is so."""
    renamed_over(sidecar.file, sidecar.text(clients=clients(5))[:left])
    await sidecar.refuses(1)
    assert limit_of(sidecar) == 1000
    assert sidecar.ask("GET", "/ready").body == b"ready"
    assert len(sidecar.refusals()) == 1
    assert str(sidecar.file) in sidecar.refusals()[0][0]
    renamed_over(sidecar.file, sidecar.text())
    await in_force(sidecar, 5)
    assert sidecar.is_good()


async def test_one_entry_of_the_log_names_every_error_and_its_line(sidecar: EditedSidecar) -> None:
    """As `sidecar check` would; and `GET /v1/config` until they are mended."""
    wrong = [{"id": "c", "rules": [{**RULE, "limit": -1, "window_seconds": "long"}], "colour": "red"}]
    text = sidecar.text(clients=wrong, enforcement="sometimes")
    renamed_over(sidecar.file, text)
    await sidecar.refuses(1)
    (problems,) = sidecar.refusals()
    lines = text.splitlines()
    for word in ('"limit"', '"window_seconds"', '"colour"', '"enforcement"'):
        number = next(at for at, line in enumerate(lines, 1) if word in line)
        assert [each for each in problems if f"{sidecar.file}:{number}:" in each], (word, number, problems)
    assert sidecar.admin("GET", "/v1/config").json["problems"] == problems
    assert limit_of(sidecar) == 1000


async def test_a_file_that_is_removed_leaves_the_last_good_one_in_force(sidecar: EditedSidecar) -> None:
    """And is read again when it is back."""
    sidecar.file.unlink()
    await sidecar.refuses(1)
    assert limit_of(sidecar) == 1000
    sidecar.file.write_text(sidecar.text(clients=clients(5)))
    await in_force(sidecar, 5)
    assert sidecar.is_good()


async def test_an_edit_keeps_counters_and_the_next_request_meets_it(sidecar: EditedSidecar) -> None:
    """Three of 1000 are used; of 5 then two remain; at 3 nothing does, and at 1000 again all the others."""
    for _ in range(3):
        assert sidecar.ask("GET", "/authz/x").status == 200
    for limit, status, remaining in ((5, 200, "1"), (3, 429, "0"), (1000, 200, "995")):
        renamed_over(sidecar.file, sidecar.text(clients=clients(limit)))
        done(sidecar.admin("POST", "/v1/reload"))
        reply = sidecar.ask("GET", "/authz/x")
        assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (status, remaining)


async def test_sighup_reads_the_files_again(sidecar: EditedSidecar) -> None:
    """Also when nothing has changed in them that could be noticed, such as a variable's file elsewhere."""
    for taken in (1, 2):
        os.kill(sidecar.pid, signal.SIGHUP)
        await taken_over(sidecar, taken)
    assert limit_of(sidecar) == 1000


async def test_reload_by_the_api_says_what_is_in_force_or_what_is_wrong(sidecar: EditedSidecar) -> None:
    """200 with the configuration, 422 with each error's file and line; a viewer may not."""
    renamed_over(sidecar.file, sidecar.text(clients=clients(5)))
    taken = done(sidecar.admin("POST", "/v1/reload")).json
    assert taken["clients"] == {"c": {"source": "file", "file": str(sidecar.file)}}
    assert taken["problems"] == []
    assert limit_of(sidecar) == 5
    text = sidecar.text(clients=clients(0))
    renamed_over(sidecar.file, text)
    refused = sidecar.admin("POST", "/v1/reload")
    assert (refused.status, refused.headers["content-type"]) == (422, "application/problem+json")
    number = next(at for at, line in enumerate(text.splitlines(), 1) if '"limit"' in line)
    assert f"{sidecar.file}:{number}" in refused.body.decode()
    assert limit_of(sidecar) == 5


async def test_a_reload_by_the_api_is_in_the_audit_list_with_what_came_of_it(sidecar: EditedSidecar) -> None:
    """One that was refused, too: somebody has to mend the files."""
    done(sidecar.admin("POST", "/v1/reload"))
    renamed_over(sidecar.file, sidecar.text(clients=clients(0)))
    assert sidecar.admin("POST", "/v1/reload").status == 422
    refused, taken = sidecar.admin("GET", "/v1/audit").json["entries"]
    assert [(one["by"], one["action"]) for one in (refused, taken)] == [("ops", "configuration.reload")] * 2
    assert [one["subject"] for one in (refused, taken)] == ["refused: 1 problem", "taken over: 1 file"]


async def test_a_reload_that_cannot_be_noted_is_done_all_the_same(
    tmp_path: Path, valkey_binary: Path
) -> None:
    """While the store is away, a mistake in a file is still to be mended."""
    with StoreServer(valkey_binary) as store:
        config = {"store": {"url": store.url}, "default_client": "c", "clients": clients(1000)}
        with EditedSidecar(tmp_path / "config", config) as sidecar:
            store.stop()
            done(sidecar.admin("POST", "/v1/reload"))
            assert len(sidecar.logged("a reload could not be noted in the audit list")) == 1
            store.start()


async def test_the_configuration_that_is_shown_is_the_one_in_force(sidecar: EditedSidecar) -> None:
    """With the API's switch, clients and overrides, and each with where it comes from."""
    done(sidecar.admin("PUT", "/v1/enforcement", {"enforcement": "shadow"}))
    done(sidecar.admin("PATCH", "/v1/clients/c", {"name": "changed"}))
    done(sidecar.admin("POST", "/v1/clients", {"id": "made"}), 201)
    shown = done(sidecar.admin("GET", "/v1/config")).json
    assert shown["enforcement"] == {"enforcement": "shadow", "source": "api"}
    assert shown["settings"]["enforcement"] == "shadow"
    assert shown["clients"] == {
        "c": {"source": "override", "file": str(sidecar.file)},
        "made": {"source": "api", "file": None},
    }
    assert sidecar.admin("DELETE", "/v1/enforcement").status == 204
    shown = done(sidecar.admin("GET", "/v1/config")).json
    assert (shown["settings"]["enforcement"], shown["enforcement"]["source"]) == ("on", "file")


async def test_what_needs_a_restart_is_said_until_it_has_come_or_is_taken_back(
    sidecar: EditedSidecar, config: dict[str, Any]
) -> None:
    """Through any number of reloads; what the process runs with is shown meanwhile."""

    def reloaded(store: dict[str, Any]) -> dict[str, Any]:
        renamed_over(sidecar.file, sidecar.text(store=store))
        shown: dict[str, Any] = done(sidecar.admin("POST", "/v1/reload")).json
        return shown

    def restarts(shown: dict[str, Any]) -> list[str]:
        return [each for each in shown["warnings"] if "needs a restart" in each]

    before = done(sidecar.admin("GET", "/v1/config")).json["settings"]
    kept = sidecar.settings("store")
    for _ in range(2):
        shown = reloaded({**kept, "timeout_ms": 77, "on_unavailable": "deny"})
        assert restarts(shown) == ["needs a restart: store.timeout_ms"]
        assert shown["settings"]["store"] == {**before["store"], "on_unavailable": "deny"}
    assert restarts(reloaded(kept)) == []


async def test_an_override_stands_above_the_file_until_it_is_deleted(sidecar: EditedSidecar) -> None:
    """Through a reload and a restart; then the file's version is back, as the file is by then."""
    assert sidecar.admin("GET", "/v1/clients/c").json["source"] == "file"
    done(sidecar.admin("PATCH", "/v1/clients/c/policies/all", {"limit": 50}))
    assert sidecar.admin("GET", "/v1/clients/c").json["source"] == "override"
    renamed_over(sidecar.file, sidecar.text(clients=clients(5)))
    done(sidecar.admin("POST", "/v1/reload"))
    assert limit_of(sidecar) == 50
    sidecar.stop()
    sidecar.start()
    assert (limit_of(sidecar), sidecar.admin("GET", "/v1/clients/c").json["source"]) == (50, "override")
    assert sidecar.admin("DELETE", "/v1/clients/c").status == 204
    assert (limit_of(sidecar), sidecar.admin("GET", "/v1/clients/c").json["source"]) == (5, "file")
    refused = sidecar.admin("DELETE", "/v1/clients/c")
    assert refused.status == 409
    assert str(sidecar.file) in refused.json["detail"]


async def test_twenty_reloads_under_load_leave_no_request_without_limiting(sidecar: EditedSidecar) -> None:
    """Only 200 and 429, each with its limit, and after the last one only that one's."""
    load = SteadyLoad([sidecar.port], connections=4, per_second=400)
    limits = [10 + number if number % 2 else 100_000 - number for number in range(20)]
    async with load:
        for limit in limits:
            mark = load.mark()[0]
            renamed_over(sidecar.file, sidecar.text(clients=clients(limit)))
            last = await load.enforces(0, limit, mark, SECONDS)
    assert not load.without_limiting()
    assert not list(load.outdated(0, limits[-1], last))


async def test_a_pipe_in_the_place_of_the_file_is_refused(sidecar: EditedSidecar) -> None:
    """Nobody waits for who might write into it: neither a request, nor the next reload, nor the end."""
    text = sidecar.text(clients=clients(5))
    sidecar.file.unlink()
    os.mkfifo(sidecar.file)
    await sidecar.refuses(1)
    assert limit_of(sidecar) == 1000
    renamed_over(sidecar.file, text)
    await in_force(sidecar, 5)
    assert sidecar.is_good()


async def test_the_default_client_may_be_one_that_the_api_made(sidecar: EditedSidecar) -> None:
    """Taken over with a warning; before it is made, its requests are not limited."""
    made = {"id": "made", "rules": [{**RULE, "limit": 7}]}
    renamed_over(sidecar.file, sidecar.text(default_client="made"))
    await taken_over(sidecar, 1)
    assert "x-ratelimit-limit" not in sidecar.ask("GET", "/authz/x").headers
    warnings = sidecar.admin("GET", "/v1/config").json["warnings"]
    assert any("default_client: no file defines 'made': until the API makes it" in each for each in warnings)
    done(sidecar.admin("POST", "/v1/clients", made), 201)
    await in_force(sidecar, 7)
    assert sidecar.is_good()
