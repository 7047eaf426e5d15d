"""The main file: its settings, with what the environment gives, and which further files it names."""

import glob
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from os.path import realpath
from pathlib import Path
from typing import Any

from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import Problem
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.config.substitution import Origin
from sidecar.infrastructure.config.yaml_source import read_document
from sidecar.infrastructure.validation import NO_TEXT, Malformed, Rejected, reader

_read_settings = reader(Settings)
#: What the environment says where the file does not.
_FROM_ENVIRONMENT: tuple[tuple[tuple[str, ...], str], ...] = (
    (("store", "url"), "REDIS_URL"),
    (("log_level",), "LOG_LEVEL"),
    (("app_env",), "APP_ENV"),
)
_CERTIFICATES = ("authz_tls", "admin_tls")


def read_main(path: Path, environ: Mapping[str, str]) -> Document:
    return _with_environment(read_document(path, environ), environ)


def _with_environment(main: Document, environ: Mapping[str, str]) -> Document:
    """The document with what the environment gives for keys that are left out; empty is not set."""
    if not isinstance(main.value, dict):
        return main
    value, lines, origins = dict(main.value), dict(main.lines), dict(main.origins)
    for location, name in _FROM_ENVIRONMENT:
        holder: Any = value
        for key in location[:-1]:
            holder[key] = dict(held) if isinstance(held := holder.get(key, {}), dict) else held
            holder = holder[key]
        if isinstance(holder, dict) and location[-1] not in holder and (text := environ.get(name)):
            holder[location[-1]] = text
            lines[location] = None
            origins[location] = Origin(text, f"${{{name}}}", ((text, f"${{{name}}}"),))
    return replace(main, value=value, lines=lines, origins=origins)


def settings_of(main: Document) -> tuple[Settings | None, list[Problem]]:
    """The settings without clients, which are read one by one."""
    if not isinstance(main.value, dict):
        return None, []
    if problem := _emptied_secret(main):
        return None, [problem]
    try:
        value = main.value | {"clients": []}
        return _read_settings(json.dumps(_with_folder(value, main.path.parent))), []
    except Rejected as error:
        return None, main.found(error.located)
    except Malformed:
        return None, [main.problem((), NO_TEXT)]


def _with_folder(value: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Files of certificates are named as all others: relative to the folder of the configuration."""
    if not isinstance(listen := value.get("listen"), dict):
        return value
    placed = {name: listen[name] for name in _CERTIFICATES if isinstance(listen.get(name), dict)}
    for name, files in placed.items():
        placed[name] = {
            key: str(folder / file) if file and isinstance(file, str) else file for key, file in files.items()
        }
    return value | {"listen": listen | placed}


def _emptied_secret(main: Document) -> Problem | None:
    """An empty variable must not open the port, as a `null` that somebody wrote does."""
    where = ("listen", "secret")
    listen, origin = main.value.get("listen"), main.origins.get(where)
    if origin and not origin.text and isinstance(listen, dict) and listen.get("secret") is None:
        return main.problem(where, "is empty; without the key nobody is asked for a secret")
    return None


def client_folders(main: Path, named: Any) -> tuple[Path, ...]:
    """Where `clients_from` looks."""
    found: list[Path] = []
    for pattern in _patterns(named):
        plain = pattern
        while glob.has_magic(plain):
            plain = str(Path(plain).parent)
            found += _matching(main.parent, plain)
        found.append(main.parent / plain if plain != pattern else (main.parent / plain).parent)
    return tuple(dict.fromkeys(found))


def unlisted(main: Document, named: Any) -> list[Problem]:
    """Folders that cannot be looked into: their clients have not gone, as they would with the folder."""
    patterns = [pattern for pattern in _patterns(named) if glob.has_magic(pattern)]
    errors = ((folder, _listing_error(folder)) for folder in client_folders(main.path, patterns))
    return main.found(
        (("clients_from",), f"the folder {folder} cannot be read: {error.lower()}")
        for folder, error in errors
        if error
    )


def _listing_error(folder: Path) -> str:
    try:
        os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def client_files(main: Path, named: Any) -> Iterator[Path]:
    """The files that `clients_from` names, each once, whatever is written there."""
    seen = {realpath(main)}  # of a link that leads to itself, whoever reads it says so
    for pattern in _patterns(named):
        for path in _matching(main.parent, pattern):
            if (real := realpath(path)) not in seen:
                seen.add(real)
                yield path


def _patterns(named: Any) -> list[str]:
    patterns = [named] if isinstance(named, str) else named if isinstance(named, list | tuple) else []
    return [pattern for pattern in patterns if isinstance(pattern, str) and "\0" not in pattern]


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Files of a pattern, sorted. A plain name is a file that has to be there."""
    if not glob.has_magic(pattern):
        return [folder / pattern] if pattern else []
    return [folder / name for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True))]
