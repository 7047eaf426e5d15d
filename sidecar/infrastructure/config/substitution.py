"""`${NAME}`, `${NAME:-default}` and `${file:/path}` inside a scalar; `$${` is a literal `${`.

What comes from outside may be a secret, so each text remembers what must not be repeated in a message.
"""

import errno
import hashlib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 16 * 1024 * 1024
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_WRITTEN = "expected ${NAME}, ${NAME:-default} or ${file:/path}; a literal ${ is written $${"


class Unreadable(ValueError):
    """A file that cannot be read, and why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the text of a scalar came from: `pieces` are `(text, reference)`, defaults left out."""

    text: str
    reference: str
    pieces: tuple[tuple[str, str], ...] = ()


def read_text(path: Path) -> str:
    """The text of a regular UTF-8 file of at most 16 MiB; raises `Unreadable`."""
    try:
        _check_regular(path)
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:  # a NUL in the path
        raise Unreadable(f"cannot be read: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable("cannot be read: it is larger than 16 MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8: byte {error.start + 1} cannot be read") from error


def digest(text: str) -> bytes:
    """The same for the same text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _check_regular(path: Path) -> None:
    """Before it is opened: opening a FIFO waits for someone who writes, reading a device need not end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a directory, opening says what it is
        raise OSError(errno.EINVAL, "no regular file")


class Substitution:
    """Fills in what scalars refer to; `read` collects the files that were asked for."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self._environ = environ
        self._folder = folder
        #: File → digest of what was in it.
        self.read: dict[Path, bytes] = {}

    def fill(self, text: str) -> Origin:
        """The text with every reference replaced; raises `Unreadable` saying which one cannot be."""
        references: list[str] = []
        pieces: list[tuple[str, str]] = []

        def replaced(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            found, is_default, name = self._look_up(match[1])
            references.append(name)
            if not is_default:
                pieces.append((found, name))
            return found

        filled = _REFERENCE.sub(replaced, text)
        return Origin(filled, " and ".join(dict.fromkeys(references)), tuple(pieces))

    def _look_up(self, reference: str | None) -> tuple[str, bool, str]:
        """Text, whether it is the default, and the reference without its default."""
        if reference is None:
            raise Unreadable(_WRITTEN)
        if reference.startswith("file:"):
            return self._file(reference.removeprefix("file:")), False, f"${{{reference}}}"
        if not (match := _VARIABLE.fullmatch(reference)):
            raise Unreadable(_WRITTEN)
        name, default = match.groups()
        value = self._environ.get(name)
        if default is not None and not value:
            return default, True, f"${{{name}}}"
        if value is None:
            raise Unreadable(
                f"the environment variable {name} is not set; ${{{name}:-default}} has a default"
            )
        return value, False, f"${{{name}}}"

    def _file(self, name: str) -> str:
        path = self._folder / name
        try:
            text = read_text(path)
        except Unreadable as error:
            raise Unreadable(f"the file {name} {error}") from error
        found = digest(text)
        if self.read.setdefault(path, found) != found:
            self.read[path] = b""  # written to meanwhile: whatever is in it later, it is something else
        return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
