"""Files read again by a serving sidecar: the same as reading them anew, and what has not changed stays."""

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from sidecar.infrastructure.config import Configuration, ConfigurationError, load, rereading
from sidecar.infrastructure.config.rereading import ReadingFailed, Rereading

RULE = "{route: /*, identifier_type: ip, limit: 5, window_seconds: 60}"
MAIN = f"clients_from: d/*.yaml\nclients: [{{id: own, hosts: [own.com], rules: [{RULE}]}}]\n"
A = f"clients:\n- {{id: a, hosts: [a.com], rules: [{RULE}]}}\n- {{id: a2}}\n"
B = f"clients: [{{id: b, name: '${{file:../name}}', rules: [{RULE}]}}]\n"
FILES = {"sidecar.yaml": MAIN, "d/a.yaml": A, "d/b.yaml": B, "name": "Bee"}
ENVIRON = {"ID": "b"}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "sidecar.yaml"


@pytest.fixture
def before(tmp_path: Path) -> Configuration:
    return load(written(tmp_path, FILES), ENVIRON)


def read_again(before: Configuration) -> Configuration:
    reading = Rereading(before)
    try:
        reading.begin()
        return reading.take()
    finally:
        reading.end()


def kept(before: Configuration, now: Configuration) -> set[str]:
    """The clients that are the very same objects."""
    known = {id(client) for client in before.clients}
    return {client.id for client in now.clients if id(client) in known}


EDITS = {
    "nothing": ({}, {"own", "a", "a2", "b"}),
    "one client of a file": ({"d/a.yaml": A.replace("id: a2", "id: a2, name: new")}, {"own", "a", "b"}),
    "a comment": ({"d/a.yaml": f"# new\n{A}"}, {"own", "a", "a2", "b"}),
    "what a file refers to": ({"name": "Bea"}, {"own", "a", "a2"}),
    "a further file": ({"d/c.yaml": "clients: [{id: c}]\n"}, {"own", "a", "a2", "b"}),
    "the default": ({"sidecar.yaml": f"default_client: b\n{MAIN}"}, {"own", "a", "a2", "b"}),
    "a default that nobody is": ({"sidecar.yaml": f"default_client: bb\n{MAIN}"}, {"own", "a", "a2", "b"}),
    "the switch": ({"sidecar.yaml": f"enforcement: off\n{MAIN}"}, {"own", "a", "a2", "b"}),
    "what is served": ({"sidecar.yaml": f"listen: {{apis: [rate]}}\n{MAIN}"}, {"own", "a", "a2", "b"}),
    "a client to another file": (
        {"d/a.yaml": "clients: [{id: a2}]\n", "d/b.yaml": B.replace("id: b", "id: a")},
        {"own", "a2"},
    ),
    "an id from outside": ({"d/b.yaml": B.replace("id: b", "id: '${ID}'")}, {"own", "a", "a2", "b"}),
}


@pytest.mark.parametrize(("edit", "same"), EDITS.values(), ids=EDITS.keys())
def test_after_an_edit_everything_is_as_if_it_were_read_for_the_first_time(
    before: Configuration, tmp_path: Path, edit: Mapping[str, str], same: set[str]
) -> None:
    """Warnings, too; but clients that are equal to those of before are the same, and so are compiled."""
    path = written(tmp_path, edit)
    now = read_again(before)
    assert now == load(path, ENVIRON)
    assert kept(before, now) == same
    again = read_again(now)
    assert again == now
    assert kept(now, again) == {client.id for client in now.clients}


WRONG = {
    "an id twice": {"d/b.yaml": B.replace("id: b", "id: a")},
    "a host twice": {"d/b.yaml": B.replace("id: b", "id: b, hosts: [a.com]")},
    "a client": {"d/a.yaml": A.replace("limit: 5", "limit: none"), "d/b.yaml": B.replace("id: b", "id: own")},
    "a key": {"d/a.yaml": f"rules: []\n{A}"},
    "the text": {"d/a.yaml": "{"},
    "the settings": {"sidecar.yaml": f"workers: many\n{MAIN}", "d/b.yaml": B.replace("id: b", "id: own")},
}


@pytest.mark.parametrize("edit", WRONG.values(), ids=WRONG.keys())
def test_of_what_is_wrong_everything_is_told_as_if_it_were_read_for_the_first_time(
    before: Configuration, tmp_path: Path, edit: Mapping[str, str]
) -> None:
    """Between a file that has changed and one that has not, too; with lines of both."""
    path = written(tmp_path, edit)
    with pytest.raises(ConfigurationError) as anew:
        load(path, ENVIRON)
    with pytest.raises(ConfigurationError) as again:
        read_again(before)
    assert again.value.problems == anew.value.problems != ()
    written(tmp_path, FILES)
    assert kept(before, read_again(before)) == {"own", "a", "a2", "b"}


def test_many_are_read_by_another_process_with_the_same_result(
    before: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hands over what has changed; of what is wrong it tells all."""
    monkeypatch.setattr(rereading, "SMALL_BYTES", 0)
    monkeypatch.setattr(rereading, "load", None)
    changed = {"d/a.yaml": A.replace("id: a2", "id: a2, name: new"), "d/c.yaml": "clients: [{id: c}]\n"}
    path = written(tmp_path, changed)
    now = read_again(before)
    assert now == load(path, ENVIRON)
    assert kept(before, now) == {"own", "a", "b"}
    written(tmp_path, {"d/c.yaml": "clients: [{id: a}]\n"})
    with pytest.raises(ConfigurationError, match=r"d/c\.yaml:1: .*'a' stands in .*/d/a\.yaml:2 already"):
        read_again(now)


def test_where_there_can_be_no_other_process_this_one_reads(
    before: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "SMALL_BYTES", 0)
    monkeypatch.setattr(rereading, "python", lambda: ["/nowhere/python"])
    assert read_again(before) == before


def test_a_process_that_dies_is_no_configuration(
    before: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what it was, the status is said."""
    monkeypatch.setattr(rereading, "SMALL_BYTES", 0)
    monkeypatch.setattr(rereading, "python", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(ReadingFailed, match="3"):
        read_again(before)


@pytest.mark.parametrize("hanging", ["cat >/dev/null; exec sleep 60", "exec sleep 60"])
def test_reading_ends_when_it_is_told_to(
    tmp_path: Path, hanging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another thread: a sidecar that stops does not wait for it, even if it does not listen."""
    monkeypatch.setattr(rereading, "SMALL_BYTES", 0)
    monkeypatch.setattr(rereading, "python", lambda: ["sh", "-c", hanging])
    more_than_a_pipe_holds = {f"LARGE{number}": "x" * 5000 for number in range(100)}
    reading = Rereading(load(written(tmp_path, FILES), ENVIRON | more_than_a_pipe_holds))
    failed = []

    def begin() -> None:
        try:
            reading.begin()
        except ReadingFailed as error:
            failed.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    while not reading.brings_much:
        thread.join(0.01)
    reading.end()
    thread.join(30)
    assert len(failed) == 1
