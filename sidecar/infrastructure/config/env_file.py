"""A `.env` file: variables for a configuration, one a line.

Values are taken as they stand: nothing in them is a reference or an escape, `$` and `#` are characters. What
other readers of such files would understand differently has to be in quotes.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sidecar.infrastructure.config.problems import ConfigurationError, Problem
from sidecar.infrastructure.config.substitution import Unreadable, read_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_env_file(path: Path) -> dict[str, str]:
    """Name to value; later lines stand above earlier ones. Raises `ConfigurationError`, without any value."""
    try:
        text = read_text(path)
    except Unreadable as error:
        raise ConfigurationError([Problem(path, None, "", str(error))]) from error
    found: dict[str, str] = {}
    problems = []
    for number, line in _lines(text):
        name, equals, written = (part.strip() for part in line.partition("="))
        if not equals or not _NAME.fullmatch(name):
            problems.append(Problem(path, number, "", "expected NAME=VALUE"))
            continue
        try:
            found[name] = _value(written)
        except ValueError as error:
            problems.append(Problem(path, number, name, str(error)))
    if problems:
        raise ConfigurationError(problems)
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield number, stripped


def _value(written: str) -> str:
    quote = written[:1]
    if quote in ("'", '"'):
        if written.find(quote, 1) != len(written) - 1:
            raise ValueError("expected nothing after a closing quote, and no such quote inside")
        return written[1:-1]
    if re.search(r"\s#", written):
        raise ValueError("expected quotes around a value with ' #' in it; a comment has a line of its own")
    return written
