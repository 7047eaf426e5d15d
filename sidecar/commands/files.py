"""Which configuration a command works with, and what is said about it on the way."""

import os
import sys
from pathlib import Path

from sidecar.assets import asset
from sidecar.infrastructure.config.loading import Configuration, load

DEFAULT_FILES = ("sidecar.yaml", "config/sidecar.yaml", "/etc/ratelimit-sidecar/sidecar.yaml")
#: For the help of `--config`.
DEFAULTS = f"default: the first of {', '.join(DEFAULT_FILES)}, else built in"


def load_and_warn(file: Path) -> Configuration:
    """Raises `ConfigurationError`; warnings go to stderr."""
    configuration = load(file, os.environ)
    for warning in configuration.warnings:
        say("warning", warning)
    return configuration


def default_file() -> Path:
    found = [path for path in map(Path, DEFAULT_FILES) if path.exists()]
    return found[0] if found else asset("sidecar.yaml")


def say(kind: str, what: object) -> None:
    """For people, who read stderr."""
    print(f"{kind}: {what}", file=sys.stderr)
