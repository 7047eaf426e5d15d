"""The shape of the house: what inner layers may import, and how long a file may be."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sidecar

PACKAGE = Path(sidecar.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it and however written."""
    package = (PACKAGE.name, *file.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*outer, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_allowed(module: str, layers: tuple[str, ...]) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names or any(
        f"{module}.".startswith(f"sidecar.{layer}.") for layer in layers
    )


def layer(name: str) -> list[Path]:
    return [file for file in FILES if file.is_relative_to(PACKAGE / name)]


@pytest.mark.parametrize(
    ("name", "layers"), [("domain", ("domain",)), ("application", ("domain", "application"))]
)
def test_inner_layers_import_the_standard_library_and_what_is_inside_them(
    name: str, layers: tuple[str, ...]
) -> None:
    """The domain knows only itself, the application only the domain beside itself."""
    files = layer(name)
    assert files
    outside = {f"{file.name}: {m}" for file in files for m in imported(file) if not is_allowed(m, layers)}
    assert not outside


@pytest.mark.parametrize("module", ["asyncio", "time", "logging", "socket", "random", "threading"])
def test_the_domain_has_no_clock_no_io_and_no_log(module: str) -> None:
    """It is told the time and what was asked, and answers with values."""
    names = {name.partition(".")[0] for file in layer("domain") for name in imported(file)}
    assert module not in names


def test_no_file_is_longer_than_300_lines() -> None:
    """A file is read in one go."""
    lengths = {str(file.relative_to(PACKAGE)): len(file.read_text("utf-8").splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 300} == {}
