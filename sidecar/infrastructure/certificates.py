"""Certificates for a port, read again when they are renewed.

A renewed certificate holds for connections from then on; those that are open are not closed for it.
"""

import asyncio
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path

#: How often the files are looked at; certificates are renewed days before they end.
LOOK_SECONDS = 10.0
_log = logging.getLogger("sidecar")


def server_context(certificate: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """TLS 1.2 or newer. Raises `ValueError` saying which file is wrong."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A passphrase would be asked for at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"certificate and key cannot be used: {error.strerror or error}") from None
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"client_ca cannot be used: {error.strerror or error}") from None
    return context


async def keep_fresh(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Take over what the two files become, until cancelled; while they do not fit, the last pair stays."""
    known = _state((certificate, key))
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if (now := _state((certificate, key))) == known:
            continue
        known = now
        try:
            server_context(certificate, key, None)  # first elsewhere: a wrong key would spoil the pair
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (ValueError, OSError, ssl.SSLError) as error:
            _log.error("a renewed certificate cannot be used", extra={"error": str(error)})
        else:
            _log.info("a renewed certificate is used", extra={"certificate": certificate})


def _state(files: Sequence[str]) -> list[tuple[int, int] | None]:
    return [_file_state(Path(file)) for file in files]


def _file_state(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
