"""Commands as bytes (RESP), so that what is the same in each of them is written once."""

from collections.abc import Iterable, Sequence

Word = str | int


def bulk(word: Word) -> bytes:
    """One word of a command."""
    data = str(word).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulks(words: Iterable[Word]) -> bytes:
    return b"".join(map(bulk, words))


def command(number: int, parts: Sequence[bytes]) -> bytes:
    """A command of so many words; a part may be several of them."""
    return b"*%d\r\n%b" % (number, b"".join(parts))
