"""Inputs: text and bytes as strangers write them, and what is right but for a few places."""

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

#: What has a meaning somewhere, and the usual troublemakers.
PIECES = (
    *(
        "/",
        "//",
        "/.",
        "/..",
        "/./",
        "%2F",
        "%2f",
        "%5C",
        "%",
        "%zz",
        "%00",
        "\\",
        ";",
        ";a=b",
        "?",
        "#",
        "*",
        "{id}",
    ),
    *(
        "&",
        "=",
        ",",
        ", ",
        "|",
        ":",
        "::",
        "[",
        "]",
        "@",
        "~",
        "'",
        '"',
        " ",
        "\t",
        "\r",
        "\n",
        "\r\n",
        "\0",
        "\x7f",
    ),
    *(
        "é",
        "\u202e",
        "\ud800",
        "\U0001f600",
        "ſ",
        "İ",
        "٣",
        "a",
        "A",
        "0",
        "-1",
        "1e999",
        "NaN",
        "null",
        "${X}",
    ),
    *(
        "${file:/etc/passwd}",
        "$${",
        "http://",
        "https://h",
        "127.0.0.1",
        "::1",
        "::ffff:1.2.3.4",
        "fe80::1%eth0",
    ),
    *("999.1.1.1", "0x7f.1", "x" * 130, "9" * 5000, "../" * 40, "-", "_", "."),
)


def text(max_pieces: int = 12) -> st.SearchStrategy[str]:
    """Some of the pieces in a row, or anything."""
    anything = st.text(st.characters(), max_size=20)
    return st.lists(st.sampled_from(PIECES) | anything, max_size=max_pieces).map("".join)


def latin(max_pieces: int = 12) -> st.SearchStrategy[str]:
    """The same as far as a header or a request line can carry it."""
    bad = str.maketrans(dict.fromkeys("\r\n\0"))
    return text(max_pieces).map(
        lambda made: made.encode("utf-8", "surrogatepass").decode("latin-1").translate(bad)
    )


def spoilt(right: Sequence[str]) -> st.SearchStrategy[str]:
    """One of these with a few places cut out, doubled, exchanged or overwritten."""
    change = st.tuples(
        st.floats(0, 1), st.integers(0, 40), st.sampled_from([*PIECES, "", "  ", "- ", "\n  "])
    )
    return st.tuples(st.sampled_from(right), st.lists(change, min_size=1, max_size=4)).map(_spoil)


def _spoil(given: tuple[str, list[tuple[float, int, str]]]) -> str:
    made, changes = given
    for where, length, put in changes:
        at = int(where * len(made))
        made = made[:at] + put + made[at + length :]
    return made


def json_values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers() | st.floats() | text(4)
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text(3), inner, max_size=4),
        max_leaves=12,
    )


def changed(tree: Any) -> st.SearchStrategy[Any]:
    """A tree of dictionaries and lists with a few of its places given other values, or taken away."""
    return st.tuples(st.integers(0, 2**32), st.lists(json_values(), min_size=1, max_size=4)).map(
        lambda given: _changed(tree, random.Random(given[0]), list(given[1]))
    )


def _changed(tree: Any, dice: random.Random, values: list[Any]) -> Any:
    places = sum(1 for _ in _walk(tree))
    chosen = {dice.randrange(places): value for value in values}
    counter = iter(range(places))

    def copy(node: Any) -> Any:
        at = next(counter, -1)
        if isinstance(node, dict):
            made: Any = {key: copy(value) for key, value in node.items()}
        elif isinstance(node, list):
            made = [copy(value) for value in node]
        else:
            made = node
        if at not in chosen:
            return made
        if isinstance(made, dict) and made and dice.random() < 0.5:
            made.pop(dice.choice(list(made)))
            return made
        if isinstance(made, dict) and dice.random() < 0.5:
            return made | {dice.choice([*made, "new"]): chosen[at]}
        return chosen[at]

    return copy(tree)


def _walk(node: Any) -> Any:
    yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _walk(inner)
