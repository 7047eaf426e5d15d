"""Certificates for a port, read again when they are renewed.

A renewed certificate, and a renewed list of authorities, hold for connections from then on; those that are
open are not closed for it.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sidecar.domain.errors import InvalidValue

#: How often the files are looked at; certificates are renewed days before they end.
LOOK_SECONDS = 5.0
_log = logging.getLogger("sidecar")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: a certificate with those that it needs, its key, who certifies those that may connect."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        yield "certificate", self.certificate
        yield "key", self.key
        if self.client_ca is not None:
            yield "client_ca", self.client_ca

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer. Raises `InvalidValue` saying which file is wrong, and nothing that is in it."""
        problems = [(name, text) for name, file in self if (text := _unreadable(file))]
        if problems:
            raise InvalidValue(problems)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _said("certificate", f"{self.certificate} holds no certificate that can be used"):
            _chain_alone(self.certificate)
        with _said("key", f"{self.key} holds no key without a passphrase that belongs to the certificate"):
            # A passphrase would be asked for at the terminal.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            with _said("client_ca", f"{self.client_ca} holds no certificate of an authority"):
                context.load_verify_locations(self.client_ca)
        return context

    def state(self) -> list[tuple[int, int] | None]:
        """Differs when the files do."""
        return [_file_state(file) for _, file in self]


class FreshContext(ssl.SSLContext):
    """Begins each connection with what the files were when they last fitted together."""

    _current: ssl.SSLContext
    _files: CertificateFiles

    @classmethod
    def of(cls, files: CertificateFiles) -> Self:
        """Raises `InvalidValue`."""
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        made._files, made._current = files, files.context()
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self._current.wrap_bio(*arguments, **options)

    async def keep(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Take over what the files become, until cancelled; while they do not fit, the last ones stay."""
        known = self._files.state()
        while True:
            await asyncio.sleep(look_seconds)
            if (now := self._files.state()) != known:
                known = now
                self._take_over()

    def _take_over(self) -> None:
        where = str(self._files.certificate)
        try:
            self._current = self._files.context()
        except InvalidValue as error:
            _log.error(
                "a renewed certificate cannot be used; the last good one stays",
                extra={"certificate": where, "error": str(error)},
            )
        else:
            _log.info("a renewed certificate is used", extra={"certificate": where})


@contextmanager
def _said(field: str, message: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):  # the library's own text says codes, and may say more than it should
        raise InvalidValue([(field, message)]) from None


def _unreadable(file: Path) -> str | None:
    try:
        file.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"{file} cannot be read: {(reason or str(error)).lower()}"
    return None


def _chain_alone(certificate: Path) -> None:
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificate)


def _file_state(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns
