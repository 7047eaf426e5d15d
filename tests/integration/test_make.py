"""What `make run` starts, with a stand-in for the program: which command, and with which environment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = f"""\
#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]))
"""

pytestmark = pytest.mark.skipif(
    not shutil.which("make") and not os.environ.get("CI"), reason="make is not installed"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile beside a virtual environment that needs nothing more."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "sidecar"):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text(STAND_IN)
        program.chmod(0o755)
    (tmp_path / ".venv" / ".demo").touch()
    return tmp_path


def started(checkout: Path, **environ: str) -> tuple[list[str], dict[str, str]]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--silent", "run"],
        cwd=checkout,
        env=inherited | environ,
        capture_output=True,
        text=True,
        check=True,
    )
    arguments: Any
    environment: Any
    arguments, environment = json.loads(done.stdout)
    return arguments, environment


def test_without_a_dot_env_the_demo_is_run_as_it_is(checkout: Path) -> None:
    """What the environment says reaches it unchanged."""
    arguments, environment = started(checkout, SIDECAR_ADMIN_KEY="a$$b#c ${d}")
    assert arguments == ["demo"]
    assert environment["SIDECAR_ADMIN_KEY"] == "a$$b#c ${d}"


def test_a_dot_env_is_handed_over_and_neither_make_nor_the_shell_reads_it(checkout: Path) -> None:
    """So nothing in it is expanded, run, or taken for a rule."""
    (checkout / ".env").write_text("A_KEY=x$(shell touch read)\nrun: stop\n`touch read`\nPYTHON=none\n")
    arguments, environment = started(checkout)
    assert arguments == ["demo", "--env-file", ".env"]
    assert "A_KEY" not in environment
    assert not (checkout / "read").exists()
