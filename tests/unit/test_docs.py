"""What the documents say is there, and what is there is in the documents."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from pydantic import BaseModel

from sidecar.cli import main
from sidecar.domain.decision import Reason
from sidecar.domain.refusal import Refusal
from sidecar.domain.rule import Client, Rule
from sidecar.infrastructure.config.admin import AdminKey, Jwt
from sidecar.infrastructure.config.listen import Tls
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.recipes import proxies
from sidecar.infrastructure.redis.diagnosis import acl_line
from sidecar.infrastructure.telemetry.metrics import Metrics
from sidecar.infrastructure.validation import reader
from tests.proxies.matrix import FAIL_CLOSED, FAIL_OPEN, SCENARIOS, Scenario

ROOT = Path(__file__).parents[2]
DOCS = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
}
CONFIGURATION, OPERATIONS, PROXIES = (
    DOCS[f"docs/{name}.md"] for name in ("configuration", "operations", "proxies")
)
#: What has a table of its own, below the heading that names it.
TABLES: dict[str, Any] = {
    "listen.authz_tls": Tls,
    "admin.keys[]": AdminKey,
    "admin.jwt": Jwt,
    "clients[]": Client,
    "clients[].rules[]": Rule,
    "clients[].rules[].response": Refusal,
}
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_METRIC = re.compile(r"\brate_limit_\w+")
read_client = reader(Client)


def keys_of(model: type[BaseModel], beginning: str = "") -> Iterator[str]:
    """`store.url` and so on: every key that is no mapping of further ones."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys_of(kind, f"{beginning}{name}.")
        else:
            yield beginning + name


def section(text: str, heading: str) -> str:
    """From the heading that has this in it to the next one."""
    found = re.search(
        rf"^#+ [^\n]*`{re.escape(heading)}`[^\n]*\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found, f"there is no heading with `{heading}`"
    return found[1]


def rows(text: str) -> set[str]:
    """What stands in code in the first cells of its tables."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def names_of(table: Any) -> set[str]:
    return (
        set(table.model_fields) if issubclass(table, BaseModel) else {field.name for field in fields(table)}
    )


def metrics() -> set[str]:
    page = Metrics(embedded=False).page()[1].decode()
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    return capsys.readouterr().out


def test_every_key_of_the_file_has_a_row() -> None:
    """And no row is of a key that there is not."""
    first = CONFIGURATION[: CONFIGURATION.index("\n### ")]
    assert set(keys_of(Settings)) == rows(first)


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_of_a_part_has_a_row(heading: str) -> None:
    """In the table of that part."""
    assert names_of(TABLES[heading]) == rows(section(CONFIGURATION, heading))


def test_every_metric_is_described() -> None:
    """With what it means, in the one table of them."""
    table = OPERATIONS[OPERATIONS.index("## Metrics") : OPERATIONS.index("### What to alarm on")]
    assert metrics() == rows(table) & metrics()


@pytest.mark.parametrize("name", DOCS)
def test_no_document_names_a_metric_that_there_is_not(name: str) -> None:
    """An alarm on it would never go off."""
    named = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in _METRIC.findall(DOCS[name])}
    assert named <= metrics()


def test_every_reason_is_described() -> None:
    """In the table of decisions."""
    assert set(Reason) <= rows(DOCS["docs/decisions.md"])


def test_every_command_and_option_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    """Somewhere a reader looks for it: commands in the README, options there or in a document."""
    commands = re.findall(r"^    (\w+) ", help_of(capsys), re.MULTILINE)
    assert {"serve", "check", "recipe"} <= set(commands)
    for command in commands:
        assert f"`sidecar {command}" in DOCS["README.md"]
        for option in set(re.findall(r"(?<=\s)--[a-z-]+", help_of(capsys, command))) - {"--help"}:
            short = {"--config": "-c FILE", "--output": "-o DIR"}.get(option, option)
            assert any(option in text or short in text for text in DOCS.values()), f"{command} {option}"


def test_every_file_of_deploy_is_linked() -> None:
    """Of the closed variants their folder, or the file."""
    linked = {(ROOT / "docs" / target).resolve() for target in _LINK.findall(PROXIES)}
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    assert files
    missing = [path for path in files if path not in linked]
    assert [path for path in missing if path.parent.name != "fail-closed" or path.parent not in linked] == []


@pytest.mark.parametrize("proxy", proxies())
def test_every_proxy_has_a_section(proxy: str) -> None:
    """Under its name."""
    assert proxy in anchors(PROXIES)


@pytest.mark.parametrize("scenario", [*SCENARIOS, FAIL_OPEN, FAIL_CLOSED], ids=lambda scenario: scenario.name)
def test_every_scenario_of_the_matrix_has_a_row(scenario: Scenario) -> None:
    """With what was seen of each proxy."""
    assert f"\n| {scenario.name} | " in PROXIES


def test_the_least_rights_are_those_that_the_check_says() -> None:
    """A line to be copied must be the right one."""
    assert f"\n{acl_line('rl', cluster=False)}\n" in OPERATIONS
    more = set(acl_line("rl", cluster=True).split()) - set(acl_line("rl", cluster=False).split())
    assert all(f"{right}" in OPERATIONS for right in more)


@pytest.mark.parametrize("name", DOCS)
def test_rules_that_are_shown_can_be_loaded(name: str) -> None:
    """Whoever copies an example gets no error."""
    for block in _YAML.findall(DOCS[name]):
        shown = yaml.safe_load(block)
        clients = shown.get("clients", [{"id": "shown", "rules": shown["rules"]}] if "rules" in shown else [])
        for client in clients:
            read_client(json.dumps(client))


@pytest.mark.parametrize("name", DOCS)
def test_links_lead_somewhere(name: str) -> None:
    """To a file of this repository, and to a heading that it has."""
    for target in _LINK.findall(_FENCED.sub("", DOCS[name])):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        path = ((ROOT / name).parent / file).resolve() if file else ROOT / name
        assert path.exists(), f"{name}: {target}"
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), f"{name}: {target}"
