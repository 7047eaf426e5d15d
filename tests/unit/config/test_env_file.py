"""A `.env` file is read as people write it: values as they stand."""

from pathlib import Path

import pytest

from sidecar.infrastructure.config import ConfigurationError
from sidecar.infrastructure.config.env_file import read_env_file

ROOT = Path(__file__).parents[3]


def read(folder: Path, text: str) -> dict[str, str]:
    path = folder / ".env"
    path.write_text(text, encoding="utf-8")
    return read_env_file(path)


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("  with spaces inside  ", "with spaces inside"),
        ("pa$$word", "pa$$word"),
        ("${OTHER}", "${OTHER}"),
        ("$(id)", "$(id)"),
        ("`id`", "`id`"),
        ("pa#word", "pa#word"),
        ("#word", "#word"),
        ("a=b=c", "a=b=c"),
        ("a\\nb", "a\\nb"),
        ("it's", "it's"),
        ("'a b # c $d'", "a b # c $d"),
        ('" a "', " a "),
        ("'say \"x\"'", 'say "x"'),
        ("''", ""),
        ("redis://:p%40ss@h:6379/0?db=1", "redis://:p%40ss@h:6379/0?db=1"),
        ("ä\r", "ä"),
    ],
)
def test_a_value_is_taken_as_it_stands(tmp_path: Path, written: str, value: str) -> None:
    """Without the quotes around it."""
    assert read(tmp_path, f"A={written}\n") == {"A": value}


def test_empty_lines_and_comments_are_nothing(tmp_path: Path) -> None:
    """Of two lines for one name the later one holds."""
    assert read(tmp_path, "\n  # A=0\nA=1\n B = 2\nA=3") == {"A": "3", "B": "2"}


def test_what_others_would_read_differently_is_refused_without_its_value(tmp_path: Path) -> None:
    """All lines at once."""
    text = "A=s3cret # a comment\nB='s3cret\nC='s3cret' x\nD='it's3cret'\ns3cret\n1A=x\nE-F=x\nG=1\n"
    assert refused(tmp_path, text) == [
        ".env:1: A: expected quotes around a value with ' #' in it; a comment has a line of its own",
        ".env:2: B: expected nothing after a closing quote, and no such quote inside",
        ".env:3: C: expected nothing after a closing quote, and no such quote inside",
        ".env:4: D: expected nothing after a closing quote, and no such quote inside",
        ".env:5: expected NAME=VALUE",
        ".env:6: expected NAME=VALUE",
        ".env:7: expected NAME=VALUE",
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """As for a configuration."""
    with pytest.raises(ConfigurationError, match=r"none: cannot be read: no such file or directory"):
        read_env_file(tmp_path / "none")


def test_the_example_can_be_copied_as_it_is(tmp_path: Path) -> None:
    """It sets nothing, and each line in it works once its `#` is gone."""
    example = (ROOT / ".env.example").read_text("utf-8")
    assert read(tmp_path, example) == {}
    lines = [line[1:] for line in example.splitlines() if line.startswith("#") and line[1:2].isupper()]
    assert read(tmp_path, "\n".join(line for line in lines if "=" in line)).keys() == {
        "REDIS_URL",
        "SIDECAR_ADMIN_KEY",
        "APP_ENV",
        "LOG_LEVEL",
        "GRAFANA_PASSWORD",
    }
