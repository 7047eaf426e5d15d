"""A client as it is known: where it comes from, since when, and what can go wrong with changing it."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sidecar.domain.rule import Client, Rule


class NotFound(Exception):
    """There is no client or rule of that id."""


class Conflict(Exception):
    """The change contradicts what is there; the message says how."""


class ChangedMeanwhile(Exception):
    """What was to be changed is no longer what the caller has seen."""


class Source(StrEnum):
    """Where a client comes from: a file, the API, or a file with the API's version above it."""

    FILE = "file"
    API = "api"
    OVERRIDE = "override"


@dataclass(frozen=True, slots=True)
class FileClient:
    """A client that a configuration file defines; `loaded_at` is when the file was last changed (UTC)."""

    client: Client
    file: str
    loaded_at: datetime


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client as it is in force, where it comes from and since when (UTC)."""

    client: Client
    created_at: datetime
    source: Source

    @property
    def etag(self) -> str:
        """Names this state of the client; the same on every replica."""
        return hashlib.sha256(repr(self.client).encode()).hexdigest()[:32]


def present(known: KnownClient | None, client_id: str) -> KnownClient:
    """Raises `NotFound`."""
    if known is None:
        raise NotFound(f"there is no client {client_id!r}")
    return known


def rule_of(client: Client, rule_id: str) -> Rule:
    """Raises `NotFound`."""
    for rule in client.rules:
        if rule.id == rule_id:
            return rule
    raise NotFound(f"the client has no rule {rule_id!r}")
