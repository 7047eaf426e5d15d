"""Finding what matches a path, whatever else there is.

Exact routes are looked up; the others stand in a tree of path segments that is walked once. So the cost of a
look does not grow with the number of routes, but with how many combinations of `{segments}` and literal ones
a path can take, and with how many lengths of `/pre*` stand below one segment.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from sidecar.domain.route import RouteKind, RoutePattern


class Routed(Protocol):
    @property
    def pattern(self) -> RoutePattern: ...


T = TypeVar("T", bound=Routed)


class _Node(Generic[T]):
    """One segment of the tree: what ends here, and what goes on."""

    __slots__ = ("children", "ending", "partial", "prefixes", "wildcard")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.wildcard: _Node[T] | None = None
        self.ending: list[T] = []
        self.prefixes: list[T] = []
        #: length → beginning of the next segment → items (`/a/v*`)
        self.partial: dict[int, dict[str, list[T]]] = {}

    def child(self, segment: str | None) -> "_Node[T]":
        if segment is not None:
            return self.children.setdefault(segment, _Node())
        self.wildcard = self.wildcard or _Node()
        return self.wildcard

    def next(self, segment: str) -> "Iterator[_Node[T]]":
        if literal := self.children.get(segment):
            yield literal
        if self.wildcard:
            yield self.wildcard

    def begun(self, segment: str) -> Iterator[T]:
        for length, items in self.partial.items():
            yield from items.get(segment[:length], ())


class RouteIndex(Generic[T]):
    def __init__(self, items: Iterable[T]) -> None:
        self._exact: dict[str, list[T]] = {}
        self._root: _Node[T] = _Node()
        self._depth = 0
        self._catch_all: list[T] = []
        for item in items:
            self._add(item)

    def _add(self, item: T) -> None:
        pattern = item.pattern
        if pattern.kind is RouteKind.EXACT:
            self._exact.setdefault(pattern.text, []).append(item)
            return
        if pattern.catches_all:
            self._catch_all.append(item)
            return
        node = self._root
        for segment in pattern.segments:
            node = node.child(segment)
        if pattern.partial is not None:
            partial = node.partial.setdefault(len(pattern.partial), {})
            partial.setdefault(pattern.partial, []).append(item)
        elif pattern.kind is RouteKind.PREFIX:
            node.prefixes.append(item)
        else:
            node.ending.append(item)
        self._depth = max(self._depth, len(pattern.segments) + (pattern.partial is not None))

    def find(self, path: str | None) -> list[T]:
        """Everything whose route matches, in no order. What is not a path matches the catch-all alone."""
        found = list(self._catch_all)
        if path is None:
            return found
        found += self._exact.get(path, ())
        if self._depth:
            found += self._walk(path)
        return found

    def _walk(self, path: str) -> Iterator[T]:
        # Split no further than the tree is deep: a target of 60 kB may have 30,000 segments.
        segments = path[1:].split("/", self._depth) if path != "/" else []
        nodes = [self._root]
        for segment in segments:
            for node in nodes:
                yield from node.begun(segment)
            nodes = [child for node in nodes for child in node.next(segment)]
            if not nodes:
                return
            for node in nodes:
                yield from node.prefixes
        for node in nodes:
            yield from node.ending
