"""From a path to a configuration, or to everything that is wrong with it, over all of its files.

The environment comes in as an argument: the same files and the same environment give the same result.
"""

import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sidecar.domain.rule import Client
from sidecar.infrastructure.config.advice import warnings
from sidecar.infrastructure.config.clients import Placed, conflicts, read_clients
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.problems import ConfigurationError, Problem
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration without errors."""

    settings: Settings
    #: Those of all files, in the order of the files.
    clients: tuple[Client, ...]
    #: Client id → the file it stands in.
    sources: Mapping[str, Path]
    warnings: tuple[Problem, ...]
    #: Every file that was read, those named by `${file:…}` too: what has to be watched.
    files: tuple[Path, ...]
    #: Where `clients_from` looks: a file that is put there may be a further one.
    folders: tuple[Path, ...]
    #: The same files, as they are by then; raises as `load` does.
    read_again: "Callable[[], Configuration]" = field(repr=False, compare=False)


def load(path: Path, environ: Mapping[str, str]) -> Configuration:
    """Read the file and those it names; raises `ConfigurationError` with the problems of all of them."""
    main = _with_environment(read_document(path, environ), environ)
    settings, problems = _settings(main)
    documents = [main, *_client_files(main, environ)]
    problems += [problem for document in documents for problem in document.problems]
    problems += [problem for document in documents[1:] for problem in _other_keys(document)]
    placed: list[Placed] = []
    for document in documents:
        found = read_clients(document)
        placed += found[0]
        problems += found[1]
    problems += conflicts(placed)
    if problems or settings is None:
        raise ConfigurationError(_in_order(problems, documents))
    return _configuration(settings, documents, placed, partial(load, path, dict(environ)))


def _configuration(
    settings: Settings,
    documents: Sequence[Document],
    placed: Sequence[Placed],
    read_again: Callable[[], Configuration],
) -> Configuration:
    main = documents[0]
    own = tuple(one.client for one in placed if one.client and one.document is main)
    return Configuration(
        settings=settings.model_copy(update={"clients": own}),
        clients=tuple(one.client for one in placed if one.client),
        sources=MappingProxyType({one.client.id: one.document.path for one in placed if one.client}),
        warnings=tuple(_in_order(warnings(settings, main, placed), documents)),
        files=tuple(
            dict.fromkeys(file for document in documents for file in (document.path, *document.files))
        ),
        folders=tuple(dict.fromkeys(_folders(main))),
        read_again=read_again,
    )


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


def _settings(main: Document) -> tuple[Settings | None, list[Problem]]:
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


def _patterns(main: Document) -> list[str]:
    named = main.value.get("clients_from") if isinstance(main.value, dict) else None
    patterns = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return [pattern for pattern in patterns if isinstance(pattern, str)]


def _folders(main: Document) -> Iterator[Path]:
    for pattern in _patterns(main):
        plain = pattern
        while glob.has_magic(plain):
            plain = str(Path(plain).parent)
            yield from _matching(main.path.parent, plain)
        yield main.path.parent / plain if plain != pattern else (main.path.parent / plain).parent


def _client_files(main: Document, environ: Mapping[str, str]) -> Iterator[Document]:
    seen = {main.path.resolve()}
    for pattern in _patterns(main):
        for path in _matching(main.path.parent, pattern):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield read_document(path, environ)


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Files of a pattern, sorted. A plain name is a file that has to be there."""
    if not glob.has_magic(pattern):
        return [folder / pattern] if pattern else []
    return [folder / name for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True))]


def _other_keys(document: Document) -> list[Problem]:
    keys = document.value if isinstance(document.value, dict) else {}
    message = "unknown key; a file that clients_from names has the key clients alone"
    return document.found([((key,), message) for key in keys if key != "clients"])


def _in_order(
    problems: Sequence[Problem] | Iterator[Problem], documents: Sequence[Document]
) -> list[Problem]:
    """By file, then by line; each once."""
    order: dict[Path, int] = {document.path: index for index, document in enumerate(documents)}
    return sorted(dict.fromkeys(problems), key=lambda problem: (order[problem.file], problem.line or 0))
