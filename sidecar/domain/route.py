"""Canonical paths and the patterns that match them.

Two targets that an application would treat alike must meet the same rules, whatever their spelling; so a
target is brought to one form before anything is matched, and patterns are written in that same form.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from urllib.parse import quote

# Already canonical but for a trailing slash: segments of plain characters, none of them "." or "..".
_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9\-._~!$&'()*+,=:@]+)*/?")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# What may stand in a path (RFC 3986 section 3.3), "%" of what is left encoded, and the backslash, which
# some applications read as a slash: it stays distinct from both "/" and "%5C".
_PATH_CHARACTERS = "/%!$&'()*+,;=:@\\"
_TO_BE_ENCODED = re.compile(r"[^A-Za-z0-9\-._~/%!$&'()*+,;=:@\\]")
#: Two hexadecimal digits, in either case → what they stand for once brought to one form.
_DECODED = {
    high + low: chr(int(high + low, 16))
    if chr(int(high + low, 16)) in _UNRESERVED
    else f"%{high}{low}".upper()
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}
_ENCODED_SLASHES = re.compile(r"%2F|%5C|\\")
_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def canonical_path(target: str, *, decode_slashes: bool = False) -> str | None:
    """The one form in which a target is matched, or `None` when it is not a path (`OPTIONS *`).

    In this order: query and fragment dropped, percent-encoding of unreserved characters undone (RFC 3986
    section 6.2.2), `;…` stripped from each segment, slashes merged, dot segments resolved. Case is kept.
    A stray `%` is taken literally, so that it cannot lead out of a prefix rule.
    """
    path = target.partition("?")[0].partition("#")[0]
    if not path:
        return "/"
    if not path.startswith("/"):
        return None
    if _PLAIN.fullmatch(path):
        return path.rstrip("/") or "/"
    path = _decode_unreserved(path)
    if _TO_BE_ENCODED.search(path):
        try:
            path = quote(path, _PATH_CHARACTERS, errors="surrogateescape")
        except UnicodeEncodeError:  # a lone surrogate out of JSON, which stands for no bytes
            return None
    return _resolved(_ENCODED_SLASHES.sub("/", path) if decode_slashes else path)


def _decode_unreserved(path: str) -> str:
    first, *others = path.split("%")
    return first + "".join([_DECODED.get(other[:2], "%25" + other[:2]) + other[2:] for other in others])


def _resolved(path: str) -> str:
    """Without parameters, empty segments and dot segments."""
    segments: list[str] = []
    for written in path.split("/"):
        segment = written.partition(";")[0]
        if segment == "..":
            del segments[-1:]
        elif segment and segment != ".":
            segments.append(segment)
    return "/" + "/".join(segments)


class RouteKind(IntEnum):
    """How a route is written; a higher kind is more specific."""

    PREFIX = 0
    SEGMENTS = 1
    EXACT = 2


@dataclass(frozen=True, slots=True)
class RoutePattern:
    """A parsed `route`: exact (`/a/b`), with segments (`/a/{id}/b`) or a prefix (`/a/*`, `/a*`).

    `segments` are those to be met one by one, `None` standing for any; `partial` is the beginning of the
    segment after them (`/a/v*`: segments `a`, partial `v`), `None` where the prefix ends with a slash.
    """

    kind: RouteKind
    text: str
    segments: tuple[str | None, ...]
    partial: str | None = None
    #: Parameter name → index of its segment.
    parameters: tuple[tuple[str, int], ...] = ()

    @classmethod
    @lru_cache(maxsize=256)  # read again for each look at a rule; and many clients have the same ones
    def parse(cls, route: str) -> "RoutePattern":
        """Read a route; raises `ValueError` saying what is wrong with it."""
        if route == "*":
            route = "/*"
        if not route.startswith("/"):
            raise ValueError(f"expected a path that starts with '/', got {route!r}")
        if found := re.search(r"[?#;]", route):
            raise ValueError(f"{found[0]!r} never occurs in a canonical path: this route could never match")
        if route.endswith("*"):
            return cls._parse_prefix(route)
        if "*" in route:
            raise ValueError("'*' is allowed at the end only")
        return cls._parse_segments(route) if _has_braces(route) else cls._parse_exact(route)

    @classmethod
    def _parse_prefix(cls, route: str) -> "RoutePattern":
        head = route[:-1]
        if "*" in head:
            raise ValueError("'*' is allowed at the end only")
        if _has_braces(route):
            raise ValueError("a route has either {segments} or a final '*', not both")
        whole, _, partial = head.rpartition("/")
        # With a letter after it: "/.*" is the beginning of "/.git", not a dot segment. No hexadecimal one.
        if (canonical := canonical_path(f"{head}x")) != f"{head}x":
            raise ValueError(f"expected a canonical prefix, such as {(canonical or '/x')[:-1]}*")
        return cls(RouteKind.PREFIX, route, _split(whole), partial or None)

    @classmethod
    def _parse_exact(cls, route: str) -> "RoutePattern":
        path = canonical_path(route) or "/"
        return cls(RouteKind.EXACT, path, _split(path))

    @classmethod
    def _parse_segments(cls, route: str) -> "RoutePattern":
        segments: list[str | None] = []
        parameters: dict[str, int] = {}
        for segment in filter(None, route.split("/")):
            if match := _PARAMETER.fullmatch(segment):
                if match[1] in parameters:
                    raise ValueError(f"the segment {{{match[1]}}} stands twice")
                parameters[match[1]] = len(segments)
                segments.append(None)
                continue
            if _has_braces(segment):
                raise ValueError(f"expected a whole segment such as {{id}}, got {segment!r}")
            if not (literal := (canonical_path(f"/{segment}") or "/")[1:]):
                raise ValueError("dot segments never occur in a canonical path")
            segments.append(literal)
        return cls(RouteKind.SEGMENTS, route, tuple(segments), None, tuple(parameters.items()))

    @property
    def catches_all(self) -> bool:
        return self.kind is RouteKind.PREFIX and not self.segments and self.partial is None

    @property
    def specificity(self) -> tuple[int, int]:
        """Exact before segments before the longer prefix."""
        return self.kind, len(self.text) if self.kind is RouteKind.PREFIX else 0

    def matches(self, path: str | None) -> bool:
        """Whether a canonical path matches. What is not a path matches the catch-all alone."""
        if path is None:
            return self.catches_all
        segments = _split(path)
        if self.kind is not RouteKind.PREFIX and len(segments) != len(self.segments):
            return False
        if len(segments) < len(self.segments):
            return False
        if any(want is not None and want != got for want, got in zip(self.segments, segments, strict=False)):
            return False
        if self.partial is None:
            return True
        rest = segments[len(self.segments) :]
        return bool(rest) and rest[0].startswith(self.partial)

    def covers(self, other: "RoutePattern") -> bool:
        """Whether every path that `other` matches is matched here too."""
        if other.kind is RouteKind.PREFIX and self.kind is not RouteKind.PREFIX:
            return False
        return self.matches(other._example())

    def _example(self) -> str:
        # NUL never occurs in a canonical path, so it stands for "any segment" without meeting a literal one.
        segments = ["\0" if segment is None else segment for segment in self.segments]
        if self.partial is not None:
            segments.append(self.partial + "\0")
        return "/" + "/".join(segments)


def _split(path: str) -> tuple[str, ...]:
    return tuple(path[1:].split("/")) if len(path) > 1 else ()


def _has_braces(text: str) -> bool:
    return "{" in text or "}" in text
