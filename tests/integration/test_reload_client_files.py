"""Files that `clients_from` names come, change and go while the sidecar serves."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.infrastructure.config.rereading import SMALL_BYTES
from tests.edited_files import SECONDS, EditedSidecar, as_file, renamed_over, swapped
from tests.parts import StoreServer, until
from tests.replicas import limit_of

RULE = {"id": "all", "route": "/*", "identifier_type": "none", "window_seconds": 86_400}


def team(name: str, limit: Any) -> str:
    """The file of one team."""
    return as_file(
        {"clients": [{"id": name, "hosts": [f"{name}.example"], "rules": [{**RULE, "limit": limit}]}]}
    )


@pytest.fixture
def config(store: StoreServer, key_prefix: str) -> dict[str, Any]:
    return {"store": {"url": store.url, "key_prefix": key_prefix}, "clients_from": "clients.d/*.yaml"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the main file is."""
    made = tmp_path / "config"
    made.mkdir()
    return made


@pytest.fixture
def folder(home: Path) -> Path:
    made = home / "clients.d"
    made.mkdir()
    (made / "a.yaml").write_text(team("a", 10))
    return made


@pytest.fixture
def sidecar(folder: Path, config: dict[str, Any], home: Path) -> Iterator[EditedSidecar]:
    with EditedSidecar(home, config) as running:
        yield running


async def limited_to(sidecar: EditedSidecar, host: str, limit: int | None) -> None:
    what = f"{host} is limited to {limit}"
    await until(lambda: limit_of(sidecar, host=host) == limit, what, seconds=SECONDS)


async def in_force(sidecar: EditedSidecar, **limits: int | None) -> None:
    """Each client has this limit, or is not there."""
    for name, limit in limits.items():
        await limited_to(sidecar, f"{name}.example", limit)


async def test_files_that_are_added_changed_and_removed_are_taken_over(
    sidecar: EditedSidecar, folder: Path
) -> None:
    """Each by itself; the clients of the others stay as they are."""
    await in_force(sidecar, a=10, b=None)
    (folder / "b.yaml").write_text(team("b", 20))
    await in_force(sidecar, a=10, b=20)
    renamed_over(folder / "b.yaml", team("b", 21))
    await in_force(sidecar, a=10, b=21)
    (folder / "b.yaml").rename(folder / "c.yaml")
    (folder / "a.yaml").write_text(team("a", 11))
    await in_force(sidecar, a=11, b=21)
    (folder / "c.yaml").unlink()
    await in_force(sidecar, a=11, b=None)
    assert sidecar.admin("GET", "/v1/clients/b").status == 404
    assert sidecar.is_good()


async def test_one_broken_file_is_named_and_takes_nothing_down(sidecar: EditedSidecar, folder: Path) -> None:
    """All that was in force stays so, and what is good in the other files comes with its repair."""
    (folder / "b.yaml").write_text(team("b", 20))
    await in_force(sidecar, a=10, b=20)
    renamed_over(folder / "b.yaml", team("b", "many"))
    await sidecar.refuses(1)
    (problem,) = sidecar.refusals()[0]
    line = next(at for at, text in enumerate(team("b", "many").splitlines(), 1) if '"limit"' in text)
    assert f"{folder / 'b.yaml'}:{line}:" in problem
    await in_force(sidecar, a=10, b=20)
    (folder / "a.yaml").write_text(team("a", 11))
    await sidecar.refuses(2)
    await in_force(sidecar, a=10, b=20)
    renamed_over(folder / "b.yaml", team("b", 22))
    await in_force(sidecar, a=11, b=22)
    assert sidecar.is_good()


async def test_a_new_file_that_is_broken_is_taken_over_when_it_is_mended(
    sidecar: EditedSidecar, folder: Path
) -> None:
    """It was never in force, and nothing but its text changes."""
    file = folder / "b.yaml"
    file.write_text(team("b", "many"))
    await sidecar.refuses(1)
    assert len(sidecar.refusals()) == 1
    file.write_text(team("b", 0))
    await sidecar.refuses(2)
    await in_force(sidecar, a=10, b=None)
    file.write_text(team("b", 20))
    await in_force(sidecar, a=10, b=20)
    assert sidecar.is_good()


async def test_a_client_of_two_files_is_refused_naming_both(sidecar: EditedSidecar, folder: Path) -> None:
    """The one that was there first goes on counting."""
    (folder / "b.yaml").write_text(team("a", 20))
    await sidecar.refuses(1)
    told = " ".join(sidecar.refusals()[0])
    assert "a.yaml" in told
    assert "b.yaml" in told
    await in_force(sidecar, a=10)


async def test_what_is_no_file_of_the_pattern_changes_nothing(sidecar: EditedSidecar, folder: Path) -> None:
    """An editor's own files beside them."""
    (folder / ".b.yaml.swp").write_text("no YAML: [")
    (folder / "b.yaml~").write_text("no YAML: [")
    (folder / "c.yaml").write_text(team("c", 30))
    await in_force(sidecar, a=10, c=30)
    assert sidecar.refusals() == []


@pytest.mark.parametrize("pattern", ["later/*.yaml", "later/*/clients.yaml", "later/deep/*.yaml"])
async def test_a_folder_that_appears_later_is_watched_from_then_on(
    config: dict[str, Any], home: Path, pattern: str
) -> None:
    """Made step by step, as a person does: the folder, then a file in it, then another version of it."""
    file = home / pattern.replace("/*/", "/deep/").replace("*.yaml", "a.yaml")
    (home / "other.yaml").write_text(team("other", 1))
    with EditedSidecar(home, {**config, "clients_from": [pattern, "other*.yaml"]}) as sidecar:
        for number, parent in enumerate(list(reversed(file.relative_to(home).parents))[1:]):
            # When this edit is in force, the folder of before has been noticed or never will be.
            (home / "other.yaml").write_text(team("other", 2 + number))
            await in_force(sidecar, other=2 + number)
            (home / parent).mkdir()
        file.write_text(team("a", 10))
        await in_force(sidecar, a=10)
        file.write_text(team("a", 11))
        await in_force(sidecar, a=11)


async def test_a_folder_in_the_place_of_another_is_watched_from_then_on(
    sidecar: EditedSidecar, folder: Path
) -> None:
    """As deployments put it there: moved away and renamed over, at once."""
    new = folder.with_name("clients.new")
    new.mkdir()
    (new / "a.yaml").write_text(team("a", 11))
    folder.rename(folder.with_name("clients.old"))
    new.rename(folder)
    await in_force(sidecar, a=11)
    (folder / "a.yaml").write_text(team("a", 12))
    await in_force(sidecar, a=12)
    (folder / "b.yaml").write_text(team("b", 20))
    await in_force(sidecar, a=12, b=20)


async def test_a_folder_that_is_removed_takes_its_clients_with_it_and_may_return(
    sidecar: EditedSidecar, folder: Path
) -> None:
    """A pattern without any file is no error."""
    shutil.rmtree(folder)
    await in_force(sidecar, a=None)
    folder.mkdir()
    (folder / "a.yaml").write_text(team("a", 11))
    await in_force(sidecar, a=11)


async def test_a_swap_of_kubernetes_brings_changes_and_removes_files(
    config: dict[str, Any], home: Path
) -> None:
    """A ConfigMap with a file for each team, mounted where the pattern looks."""
    mounted = home / "clients.d"
    swapped(mounted, "..1", {"a.yaml": team("a", 10), "b.yaml": team("b", 20)})
    with EditedSidecar(home, config) as sidecar:
        await in_force(sidecar, a=10, b=20)
        swapped(mounted, "..2", {"a.yaml": team("a", 11), "b.yaml": team("b", 21)})
        await in_force(sidecar, a=11, b=21)
        swapped(mounted, "..3", {"a.yaml": team("a", 12), "b.yaml": team("b", 22), "c.yaml": team("c", 30)})
        await in_force(sidecar, a=12, b=22, c=30)
        swapped(mounted, "..4", {"a.yaml": team("a", "many"), "b.yaml": team("b", 23)})
        await sidecar.refuses(1)
        await in_force(sidecar, a=12, b=22, c=30)


async def test_a_file_of_many_clients_is_taken_over_as_any_other(
    sidecar: EditedSidecar, folder: Path
) -> None:
    """Though another process reads it: what is wrong has its place, and the last good one stays."""
    teams = [json.loads(team(f"t{number}", 10))["clients"][0] for number in range(1000)]
    text = "".join(["clients:\n", *(f"- {json.dumps(each)}\n" for each in teams)])
    assert len(text) > SMALL_BYTES
    for limit in (20, 30):
        changed = text.replace('"limit": 10', f'"limit": {limit}')
        renamed_over(folder / "many.yaml", changed)
        await in_force(sidecar, a=10, t0=limit, t999=limit)
    renamed_over(folder / "many.yaml", changed.replace('"id": "t999"', '"id": "a"'))
    await sidecar.refuses(1)
    assert f"{folder}/many.yaml:1001: clients.999.id: the client 'a'" in sidecar.refusals()[0][0]
    await in_force(sidecar, a=10, t0=30, t999=30)
