"""From a path to a configuration, or to everything that is wrong with it, over all of its files.

The environment comes in as an argument: the same files and the same environment give the same result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from sidecar.domain.rule import Client
from sidecar.infrastructure.config.advice import of_settings, undefined_default
from sidecar.infrastructure.config.clients import Placed, conflicts, crowded, read_clients
from sidecar.infrastructure.config.document import Document
from sidecar.infrastructure.config.main_file import (
    client_files,
    client_folders,
    read_main,
    settings_of,
    unlisted,
)
from sidecar.infrastructure.config.parts import Part, are_apart, part_of
from sidecar.infrastructure.config.problems import ConfigurationError, Problem, by_line
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.config.yaml_source import read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read, without errors: settings without clients, and each file's part, the main one first."""

    settings: Settings
    #: Warnings about the settings.
    notes: tuple[Problem, ...]
    parts: tuple[Part, ...]
    #: Where `clients_from` looks: a file that is put there may be a further one.
    folders: tuple[Path, ...]

    def is_unchanged(self) -> bool:
        """Whether the same files are there, with the same in them."""
        main = self.parts[0].path
        files = [main, *client_files(main, self.settings.clients_from)]
        return files == [part.path for part in self.parts] and all(part.is_unchanged() for part in self.parts)


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
    #: What it was made of.
    reading: Reading = field(repr=False, compare=False)
    #: What it was read from.
    path: Path
    environ: Mapping[str, str] = field(repr=False, compare=False)

    def contents(self) -> list[Iterator[object]]:
        """What is in it, one by one."""
        owners = (iter(part.owners) for part in self.reading.parts)
        return [iter(self.clients), iter(self.sources.values()), iter(self.warnings), *owners]


def load(path: Path, environ: Mapping[str, str], before: Reading | None = None) -> Configuration:
    """Read the file and those it names; raises `ConfigurationError` with the problems of all of them.

    Of what was read `before` from the same place, files that are the same are not read again.
    """
    return configuration(read(path, environ, before), path, environ, before)


def read(path: Path, environ: Mapping[str, str], before: Reading | None = None) -> Reading:
    """As `load`; of files that are the same, their parts stand as they are in `before`, outlines too."""
    return _read_by_parts(path, environ, before) or _read_whole(path, environ)


def configuration(
    reading: Reading, path: Path, environ: Mapping[str, str], before: Reading | None = None
) -> Configuration:
    known = {part.path: part for part in before.parts} if before else {}
    parts = tuple(part.with_known(known.get(part.path)) for part in reading.parts)
    sources: dict[str, Path] = {}
    for part in parts:
        sources.update(dict.fromkeys((client.id for client in part.clients), part.path))
    return Configuration(
        settings=reading.settings.model_copy(update={"clients": parts[0].clients}),
        clients=tuple(chain.from_iterable(part.clients for part in parts)),
        sources=MappingProxyType(sources),
        warnings=tuple(_warnings(reading.notes, parts)),
        files=tuple(dict.fromkeys(chain.from_iterable(part.read for part in parts))),
        reading=replace(reading, parts=parts),
        path=path,
        environ=dict(environ),
    )


def _warnings(notes: Sequence[Problem], parts: Sequence[Part]) -> Iterator[Problem]:
    alone = next(filter(None, (part.hosts_alone for part in parts)), None)
    told = [*notes, *([alone] if alone else [])]
    for part in parts:
        own = [problem for problem in told if problem.file == part.path]
        yield from by_line([*own, *part.warnings]) if own else part.warnings


def _read_by_parts(path: Path, environ: Mapping[str, str], before: Reading | None) -> Reading | None:
    """One file after the other; `None` where all have to be looked at together, to tell what is wrong.

    The main file is read in any case: what its settings name may have changed.
    """
    main = read_main(path, environ)
    settings, problems = settings_of(main)
    if settings is None or problems or unlisted(main, settings.clients_from):
        return None
    same = before and before.settings == settings and "proxy" in settings.listen.apis
    known = {part.path: part for part in before.parts} if before and same else {}
    parts = [_part(main, settings)]
    for file in client_files(path, settings.clients_from):
        part = known.get(file)
        if part is None or not part.is_unchanged():
            part = _part_of_file(file, environ, settings)
        parts.append(part)
    found = tuple(filter(None, parts))
    return _reading(settings, main, found) if len(found) == len(parts) and are_apart(found) else None


def _part_of_file(file: Path, environ: Mapping[str, str], settings: Settings) -> Part | None:
    document = read_document(file, environ)
    return None if _other_keys(document) else _part(document, settings)


def _part(document: Document, settings: Settings) -> Part | None:
    """Nothing where anything is wrong with it."""
    placed, problems = read_clients(document)
    if problems or document.problems or any(crowded(placed)):
        return None
    return part_of(document, placed, settings)


def _reading(settings: Settings, main: Document, parts: tuple[Part, ...]) -> Reading:
    # Where `proxy` is served, these notes need no clients, and parts may be outlines.
    notes = list(of_settings(settings, main, [client for part in parts for client in part.clients]))
    default = settings.default_client
    if default is not None and not any(part.defines(default) for part in parts):
        written = chain.from_iterable(part.written_ids for part in parts)
        notes.append(undefined_default(settings, main, written))
    return Reading(
        settings=settings,
        notes=tuple(notes),
        parts=parts,
        folders=client_folders(main.path, settings.clients_from),
    )


def _read_whole(path: Path, environ: Mapping[str, str]) -> Reading:
    """All files at once; raises `ConfigurationError` with all that is wrong with them."""
    main = read_main(path, environ)
    settings, problems = settings_of(main)
    named = main.value.get("clients_from") if isinstance(main.value, dict) else None
    documents = [main, *(read_document(file, environ) for file in client_files(path, named))]
    problems += unlisted(main, named)
    problems += [problem for document in documents for problem in document.problems]
    problems += [problem for document in documents[1:] for problem in _other_keys(document)]
    placed: list[list[Placed]] = []
    for document in documents:
        found = read_clients(document)
        placed.append(found[0])
        problems += found[1]
    everyone = list(chain.from_iterable(placed))
    problems += conflicts(everyone)
    if problems or settings is None:
        raise ConfigurationError(_in_order(problems, documents))
    parts = tuple(part_of(*each, settings) for each in zip(documents, placed, strict=True))
    return _reading(settings, main, parts)


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
