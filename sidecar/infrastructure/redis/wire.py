"""Commands as bytes (RESP), so that what is the same in each of them is written once; and replies as text."""

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


def text(reply: bytes | str) -> str:
    """A reply as text; bytes that are no UTF-8 come back as they were when it is encoded again."""
    return reply.decode("utf-8", "surrogateescape") if isinstance(reply, bytes) else reply
