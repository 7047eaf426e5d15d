"""Which `store.url` is taken: a wrong one is an error when loading, and not a store that is always away.

No message repeats any of the URL, which may hold a password: an option is named only where its name is a
known one. What is taken means to the Redis library what it seems to mean.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from sidecar.infrastructure import store_nodes
from sidecar.infrastructure.explanation import did_you_mean

STORES = (
    "embedded:, embedded:/absolute/directory, redis://…, rediss://…, unix://…, redis+cluster://…,"
    " rediss+cluster://…, redis+sentinel://… or rediss+sentinel://…"
)

_HOST = re.compile(r"[\w.-]{1,255}")
_DATABASE = re.compile(r"[0-9]{1,9}")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS = (*_FILES, "ssl_cert_reqs", "ssl_check_hostname")
_WORDS = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false"),
}
#: What the Redis library would take from a URL as well, and the sidecar sets itself.
_OURS = frozenset(
    (
        *("max_connections", "timeout", "socket_timeout", "socket_connect_timeout", "socket_keepalive"),
        *("retry_on_timeout", "health_check_interval", "protocol", "decode_responses", "encoding"),
        *("client_name", "username", "password", "host", "port", "path"),
    )
)


def check_store_url(url: str) -> str:
    """The URL as it is; raises `ValueError` saying what was expected."""
    scheme, colon, rest = url.partition(":")
    if store_nodes.is_several(url) and rest.startswith("//"):
        _check_several(url)
        return url
    embedded = scheme == "embedded" and colon and (not rest or rest.startswith("/"))
    if not embedded and not (scheme in ("redis", "rediss", "unix") and rest.startswith("//")):
        raise ValueError(f"expected {STORES}")
    if not embedded:
        parts = _split(url)
        options = _options(parts.query, ("db",), "rediss://")
        if scheme == "unix":
            _check_socket(parts)
        else:
            _check_server(parts, options)
        _check_options(options, None if scheme == "rediss" else "rediss://")
    return url


def _check_several(url: str) -> None:
    _check_characters(url)
    nodes = store_nodes.parse(url)
    others = store_nodes.SENTINEL_OPTIONS if nodes.kind == "sentinel" else ()
    with_tls = f"rediss+{nodes.kind}://"
    options = _options(url.partition("?")[2], others, with_tls)
    if "sentinel_username" in options and "sentinel_password" not in options:
        raise ValueError("the option sentinel_username needs sentinel_password")
    _check_options(options, None if nodes.tls else with_tls)


def _split(url: str) -> SplitResult:
    _check_characters(url)
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("expected [ and ] around an IPv6 address and nowhere else") from None


def _check_characters(url: str) -> None:
    # urlsplit drops some of them without a word.
    if re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError("expected no spaces and no control characters; percent-encode those of a password")
    if "#" in url:
        raise ValueError("expected no '#'; in a password it is written %23")


def _options(query: str, others: Sequence[str], with_tls: str) -> dict[str, str]:
    """Those of TLS, which belong to URLs `with_tls`, and `others`."""
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _OURS:
            raise ValueError(f"the option {name} cannot be set here")
        if name not in others and name not in _TLS:
            raise ValueError(_allowed(others, with_tls) + did_you_mean(name, (*others, *_TLS)))
        if name in options:
            raise ValueError(f"the option {name} stands twice")
        options[name] = value
    return options


def _allowed(others: Sequence[str], with_tls: str) -> str:
    always = f"{', '.join(others)} and, " if others else ""
    return f"expected no other options than {always}for {with_tls}, {', '.join(_TLS)}"


def _check_socket(parts: SplitResult) -> None:
    # In unix://run/redis.sock "run" would be a host. A user and a password may stand before the path.
    path = unquote(parts.path)
    if parts.netloc.rpartition("@")[2] or not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError("expected the absolute path of a socket: unix:///path")


def _check_server(parts: SplitResult, options: Mapping[str, str]) -> None:
    if not _is_host(unquote(parts.hostname or "")):
        raise ValueError("expected a host; characters such as / ? [ ] in a password are percent-encoded")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError(
            "expected a port from 1 to 65535, or none; characters such as / ? : in a password are"
            " percent-encoded"
        )
    database = parts.path.removeprefix("/")
    if database and not _DATABASE.fullmatch(database):
        raise ValueError("expected the number of a database after the host, or nothing")
    if database and "db" in options:
        raise ValueError("expected the database either after the host or as the option db")


def _is_host(host: str) -> bool:
    try:
        return bool(IPv6Address(host)) if ":" in host else bool(_HOST.fullmatch(host))
    except ValueError:
        return False


def _check_options(options: Mapping[str, str], only_for: str | None) -> None:
    """Those of TLS are `only_for` other URLs, `None` if for this one, too."""
    for name, value in options.items():
        if name == "db" and not _DATABASE.fullmatch(value):
            raise ValueError("expected the number of a database as the option db")
        if name in _TLS and only_for:
            raise ValueError(f"the option {name} belongs to {only_for}")
        if name in _FILES and not _is_file(value):
            raise ValueError(f"the file of the option {name} is not there")
        if (words := _WORDS.get(name)) and value not in words:
            raise ValueError(f"expected the option {name} to be {' or '.join(words)}")
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("the option ssl_keyfile needs ssl_certfile")


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except ValueError:  # a NUL in it
        return False
