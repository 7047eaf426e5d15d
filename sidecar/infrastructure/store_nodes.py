"""URLs of stores that are several servers: a cluster, or a primary that sentinels know.

```
redis+cluster://user:password@10.0.0.1:6379,10.0.0.2:6379?ssl_ca_certs=/ca.pem
redis+sentinel://user:password@10.0.0.1:26379,10.0.0.2:26379/primary-name/0?sentinel_password=…
```

`rediss+…` is the same over TLS. No message repeats any of the URL, which may hold a password.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from urllib.parse import parse_qsl, unquote

_URL = re.compile(r"redis(s?)\+(cluster|sentinel)://(?:([^/?#]*)@)?([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?")
_NODE = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]{1,255}))(?::([0-9]{1,5}))?")
_NAME = re.compile(r"[\w.-]{1,128}")
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
PORTS = {"cluster": 6379, "sentinel": 26379}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNodes:
    """`options` are those of TLS and of the sentinels, by the names that they have in the URL."""

    kind: str
    tls: bool
    nodes: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    #: What sentinels call the primary.
    service: str = ""
    database: int = 0
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def is_several(url: str) -> bool:
    """Whether the URL is for here: `parse` may still refuse it."""
    return url.partition(":")[0] in (f"redis{s}+{kind}" for s in ("", "s") for kind in PORTS)


def parse(url: str) -> StoreNodes:
    """Raises `ValueError` saying what was expected."""
    match = _URL.fullmatch(url)
    if not match:
        raise ValueError("expected redis+cluster://host:port,host:port or redis+sentinel://host:port,…/name")
    tls, kind, user, hosts, path, query = match.groups(default="")
    nodes = tuple(_node(written, PORTS[kind]) for written in hosts.split(","))
    username, _, password = user.partition(":")
    service, database = _path(kind, path)
    return StoreNodes(
        kind=kind,
        tls=bool(tls),
        nodes=nodes,
        username=unquote(username) or None,
        password=unquote(password) or None,
        service=service,
        database=database,
        options=_options(kind, query),
    )


def _node(written: str, default_port: int) -> tuple[str, int]:
    match = _NODE.fullmatch(written)
    port = int(match[3] or default_port) if match else 0
    if not match or not 1 <= port <= 65535:
        raise ValueError("expected host:port,host:port; characters such as / ? in a password are %-encoded")
    if match[1]:
        try:
            IPv6Address(match[1])
        except ValueError:
            raise ValueError("expected [ and ] around an IPv6 address and nowhere else") from None
    return match[1] or match[2], port


def _path(kind: str, path: str) -> tuple[str, int]:
    service, _, database = path.removeprefix("/").partition("/")
    if kind == "cluster":
        if service:
            raise ValueError("expected nothing after the hosts: a cluster has one database")
        return "", 0
    if not _NAME.fullmatch(service):
        raise ValueError("expected the name of the primary after the hosts: redis+sentinel://host:port/name")
    if database and not re.fullmatch(r"[0-9]{1,9}", database):
        raise ValueError("expected the number of a database after the name, or nothing")
    return service, int(database or 0)


def _options(kind: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ValueError("expected each option once")
    if kind == "cluster" and any(name in SENTINEL_OPTIONS for name in options):
        raise ValueError("the options of sentinels belong to redis+sentinel://")
    return options
