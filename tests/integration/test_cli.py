"""The commands as people run them: exit codes, and what is said where."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sidecar import __version__
from tests.parts import alive, free_port, until
from tests.sidecar_process import PATIENCE_SECONDS, SidecarProcess, command, environment

GOOD = """\
default_client: c
clients:
  - id: c
    rules:
      - {id: r, route: /*, identifier_type: none, limit: 1, window_seconds: 60}
"""


def run(
    *arguments: str | Path, directory: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=directory,
        env=environment(**(environ or {})),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my.yaml"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_check_of_a_good_file_says_what_is_in_it(file: Path, tmp_path: Path) -> None:
    """On stdout, with exit code 0 and no warning."""
    file.write_text(GOOD)
    done = run("check", file, directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{file}: 1 client, 1 rule, no error\n"


def test_check_says_all_errors_at_once_with_file_line_and_place(file: Path, tmp_path: Path) -> None:
    """On stderr, one a line, with exit code 1 and nothing on stdout."""
    file.write_text(
        "store: {timeout_ms: fast}\n"
        "defalt_client: c\n"
        "clients:\n"
        "  - id: c\n"
        "    rules:\n"
        "      - {id: r, route: /*, identifier_type: none, limit: 0, window_seconds: 60}\n"
        "      - {id: r2, route: nowhere, identifier_type: none, limit: 1, window_seconds: 60}\n"
    )
    done = run("check", file, directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    places = [
        f"{file}:1: store.timeout_ms: ",
        f"{file}:2: defalt_client: ",
        f"{file}:6: clients.0.rules.0.limit: ",
        f"{file}:7: clients.0.rules.1.route: ",
    ]
    assert [line[: len(place)] for line, place in zip(lines, places, strict=True)] == places
    assert "did you mean default_client?" in lines[1]


def test_check_warns_of_what_is_hardly_meant(file: Path, tmp_path: Path) -> None:
    """On stderr, and the file is good all the same."""
    file.write_text(
        GOOD.replace("default_client: c\n", "").replace("- id: c\n", "- id: c\n    hosts: [h.example]\n")
    )
    done = run("check", file, directory=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith(f"warning: {file}:3: clients.0.hosts: without a default_client")
    assert len(done.stderr.splitlines()) == 1


def test_check_warns_of_a_default_client_that_no_file_defines(file: Path, tmp_path: Path) -> None:
    """It may be one that the API made."""
    file.write_text(GOOD.replace("default_client: c\n", "default_client: made\n"))
    done = run("check", file, directory=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith(f"warning: {file}:")
    assert "default_client: no file defines 'made': until the API makes it" in done.stderr


@pytest.mark.parametrize("what", ["missing", "directory", "pipe", "binary", "empty"])
@pytest.mark.parametrize("name", ["check", "serve"])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_1(
    file: Path, tmp_path: Path, what: str, name: str
) -> None:
    """No stack trace, whatever is there instead of it."""
    match what:
        case "directory":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "binary":
            file.write_bytes(b"\xff\x00\xfe")
        case "empty":
            file.touch()
    done = run(*(("check", file) if name == "check" else ("serve", "-c", file)), directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(str(file))


def test_schema_is_a_json_schema_of_the_whole_file(tmp_path: Path) -> None:
    """For editors, on stdout."""
    done = run("schema", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"store", "listen", "clients", "admin"} <= schema["properties"].keys()


@pytest.mark.parametrize("arguments", [["schema"], ["recipe", "nginx"], ["check", "my.yaml"]])
def test_a_reader_that_has_gone_ends_a_command_quietly(
    file: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """As after `| head`: no stack trace, and the exit code of a program that wrote to nobody."""
    file.write_text(GOOD)
    (tmp_path / "sidecar.yaml").write_text(GOOD)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env=environment(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_version_and_help_are_answers(tmp_path: Path) -> None:
    """With exit code 0, on stdout."""
    version = run("--version", directory=tmp_path)
    assert (version.returncode, version.stdout, version.stderr) == (0, f"sidecar {__version__}\n", "")
    help_ = run("--help", directory=tmp_path)
    assert (help_.returncode, help_.stderr) == (0, "")
    assert "rate-limiting authorization sidecar" in help_.stdout
    for code in range(6):
        assert f"\n  {code}  " in help_.stdout
    for name in ("serve", "check", "recipe", "schema", "demo"):
        assert name in help_.stdout
        assert run(name, "--help", directory=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [[], ["unknown"], ["check"], ["recipe"], ["recipe", "x"], ["serve", "--port", "1"], ["schema", "x"]],
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    """With the usage, on stderr."""
    done = run(*arguments, directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: sidecar")


@pytest.mark.parametrize("port", ["authz", "admin"])
def test_a_taken_port_is_exit_code_3_and_named(file: Path, tmp_path: Path, taken: int, port: str) -> None:
    """Whose it is, which one, and why; the store that was started for it is stopped again."""
    listen = {"authz": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"}
    listen[port] = f"127.0.0.1:{taken}"
    file.write_text(yaml.safe_dump({"store": {"url": f"embedded:{tmp_path}/store"}, "listen": listen}))
    done = run("serve", "-c", file, directory=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"listen.{port}: cannot listen on 127.0.0.1:{taken}: Address already in use"
    )
    started = [json.loads(line) for line in done.stdout.splitlines() if "embedded store started" in line]
    assert [alive(entry["pid"]) for entry in started] == [False]


def test_a_unix_socket_on_which_somebody_listens_is_exit_code_3_and_stays(file: Path, tmp_path: Path) -> None:
    """As a taken port is."""
    # Not in tmp_path: a socket's path may not be long.
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(f"{short}/s")
        somebody.listen()
        listen = {"authz": f"unix:{short}/s", "admin": f"127.0.0.1:{free_port()}"}
        file.write_text(yaml.safe_dump({"store": {"url": f"embedded:{tmp_path}/store"}, "listen": listen}))
        done = run("serve", "-c", file, directory=tmp_path)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"{short}/s")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"listen.authz: cannot listen on unix:{short}/s: Address already in use"
    )


def test_an_embedded_store_that_cannot_start_is_exit_code_4_and_says_where(
    file: Path, tmp_path: Path
) -> None:
    """And how to give it another place."""
    (tmp_path / "regular").touch()
    file.write_text(yaml.safe_dump({"store": {"url": f"embedded:{tmp_path}/regular/store"}}))
    done = run("serve", "-c", file, directory=tmp_path)
    assert done.returncode == 4
    assert f"{tmp_path}/regular/store" in done.stderr
    assert "embedded:/path" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_0_and_its_store_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing is left running."""
    with SidecarProcess(tmp_path, yaml.safe_load(GOOD)) as sidecar:
        store = sidecar.logged("embedded store started")[0]["pid"]
        assert alive(store)
        pid = sidecar.pid
        os.kill(pid, number)
        await until(lambda: not alive(pid), "the sidecar ends")
        assert not alive(store)
        sidecar.stop()


def test_serve_without_a_file_takes_the_one_in_the_current_directory(tmp_path: Path, taken: int) -> None:
    """`sidecar.yaml`, else `config/sidecar.yaml`: shown by the address in it, which is taken."""
    config = yaml.safe_dump(
        {
            "store": {"url": f"embedded:{tmp_path}/store"},
            "listen": {"authz": f"127.0.0.1:{taken}", "admin": f"127.0.0.1:{free_port()}"},
        }
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "sidecar.yaml").write_text(config)
    done = run("serve", directory=tmp_path)
    assert (done.returncode, str(taken) in done.stderr) == (3, True)
    (tmp_path / "sidecar.yaml").write_text("unknown_key: 1\n")
    done = run("serve", directory=tmp_path)
    assert (done.returncode, done.stderr.startswith("sidecar.yaml:1: unknown_key")) == (1, True)


def test_the_environment_fills_in_the_file(file: Path, tmp_path: Path, taken: int) -> None:
    """`REDIS_URL`, `LOG_LEVEL` and `APP_ENV`, and whatever the file names."""
    file.write_text("listen: {authz: '127.0.0.1:${PORT}'}\nadmin: {keys: [{name: a, key: '${KEY:-}'}]}\n")
    given = {"PORT": str(taken), "REDIS_URL": f"embedded:{tmp_path}/store", "APP_ENV": "staging"}
    done = run("serve", "-c", file, directory=tmp_path, environ=given)
    assert done.returncode == 3
    assert {json.loads(line)["app_env"] for line in done.stdout.splitlines()} == {"staging"}
    wrong = run("check", file, directory=tmp_path, environ={"LOG_LEVEL": "LOUD", "REDIS_URL": "http://x"})
    assert wrong.returncode == 1
    for part in ("PORT", "log_level", "store.url"):
        assert part in wrong.stderr
