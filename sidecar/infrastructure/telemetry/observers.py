"""Several observers as one."""

from typing import Protocol

from sidecar.application.ports import Observer
from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata


class _Watching(Observer, Protocol):
    def unreadable_address(self) -> None: ...

    def unreadable_target(self, dialect: str) -> None: ...

    def peer_refused(self, reason: str, peer: str) -> None: ...


class Observers:
    def __init__(self, *observers: _Watching) -> None:
        self._observers = observers

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        for observer in self._observers:
            observer.decided(request, decision)

    def unreadable_address(self) -> None:
        for observer in self._observers:
            observer.unreadable_address()

    def unreadable_target(self, dialect: str) -> None:
        for observer in self._observers:
            observer.unreadable_target(dialect)

    def peer_refused(self, reason: str, peer: str) -> None:
        for observer in self._observers:
            observer.peer_refused(reason, peer)
