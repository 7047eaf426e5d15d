"""Logs: JSON lines on stdout. Bounded by time, not by traffic: a flood of refusals is one line a second."""

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sidecar.domain.decision import Decision
from sidecar.domain.identity import hashed
from sidecar.domain.request import RequestMetadata

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_log = logging.getLogger("sidecar.decisions")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and what `extra` added."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
            **{name: value for name, value in record.__dict__.items() if name not in _STANDARD},
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def set_up(level: str, app_env: str) -> None:
    """Send every log of this process to stdout, from `level` up."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(app_env=app_env))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # It says every change in a watched folder; what came of it is said by us.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


class Sampler:
    """Lets one event a second through, and says how many it held back since the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._held_back = 0

    def let_through(self) -> int | None:
        """The number held back before this event, or `None` to hold this one back too."""
        now = self._clock()
        if now < self._next:
            self._held_back += 1
            return None
        self._next = now + 1
        held_back, self._held_back = self._held_back, 0
        return held_back


class RefusalLog:
    """An `Observer` that logs a sample of the refusals, and of what could not be read or was not let in."""

    def __init__(self) -> None:
        self._refusals = Sampler()
        self._addresses = Sampler()
        self._targets = Sampler()
        self._peers = Sampler()

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        if decision.allowed or (held_back := self._refusals.let_through()) is None:
            return
        state = decision.shown
        _log.info(
            "refused",
            extra={
                "reason": decision.reason.value,
                "client": decision.client_id,
                "rule": decision.rule_id,
                "identifier": hashed(state.check.identifier) if state else None,
                "request_id": request.request_id,
                "not_logged": held_back,
            },
        )

    def unreadable_address(self) -> None:
        if (held_back := self._addresses.let_through()) is not None:
            _log.warning(
                "the client address cannot be read; such requests are counted together: "
                "is client_ip.header what the proxy sends?",
                extra={"not_logged": held_back},
            )

    def unreadable_target(self, dialect: str) -> None:
        if (held_back := self._targets.let_through()) is not None:
            _log.warning(
                "the proxy does not say what was asked for; such requests meet only rules for everything: "
                "does it set the headers of this dialect?",
                extra={"dialect": dialect, "not_logged": held_back},
            )

    def peer_refused(self, reason: str, peer: str) -> None:
        if (held_back := self._peers.let_through()) is not None:
            extra = {"reason": reason, "peer": peer, "not_logged": held_back}
            _log.warning("no access to the data port", extra=extra)


class AccessLog:
    """A sample of the requests to the admin port that were refused: why and from where, never with what."""

    def __init__(self) -> None:
        self._failures = Sampler()

    def failed(self, reason: str, address: str) -> None:
        if (held_back := self._failures.let_through()) is not None:
            extra = {"reason": reason, "address": address, "not_logged": held_back}
            logging.getLogger("sidecar.admin").warning("no access to the admin port", extra=extra)


class CrowdLog:
    """A sample of the moments in which a port had to close connections for others."""

    def __init__(self) -> None:
        self._moments = Sampler()

    def closed(self, port: str, number: int) -> None:
        if (held_back := self._moments.let_through()) is not None:
            extra = {"port": port, "closed": number, "not_logged": held_back}
            logging.getLogger("sidecar.http").warning(
                "a port holds as many connections as it may", extra=extra
            )
