"""What can grow, and the servers for each size of it; all decide the same kind of request."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.bench.contenders import TARGET, callers, config, rule
from tests.bench.load import request
from tests.bench.stage import IDENTIFIERS, Served, Stage
from tests.parts import require
from tests.sidecar_process import SidecarProcess
from tests.topologies import ClusterServers

ALGORITHMS = ("sliding_window", "sliding_window_counter", "fixed_window", "token_bucket")
#: Counts without an end, and without growing.
ENDLESS = {"algorithm": "fixed_window", "limit": 10**9, "window_seconds": 31_536_000}
#: Configurations of 100,000 clients take a while to be read.
PATIENCE_SECONDS = 300.0
_PER_FILE = 5_000


class Callers(Sequence[bytes]):
    """Requests of so many callers, made when they are sent; in no order that a cache could like."""

    def __init__(self, count: int, *, shuffled: bool = True) -> None:
        self._count = count
        self._stride = 7_919 if shuffled and count > 7_919 else 1
        one = request(TARGET, 0).replace(b"%012d" % 0, b"%012d")
        self._request = one.replace(b"session-0", b"session-%d")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        number = index * self._stride % self._count
        return self._request % (number, number)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(self._count))


def algorithms(stage: Stage) -> list[Served]:
    store = stage.store()
    configs = {name: config(rule(id=name, algorithm=name)) for name in ALGORITHMS}
    return [_served(stage, name, one, store.url, [store]) for name, one in configs.items()]


def rules_of_a_client(stage: Stage) -> list[Served]:
    """One of them fits the request."""
    store = stage.store()
    return [
        _served(stage, f"{size:,}", {"default_client": "c"}, store.url, [store], [_client(others(size - 1))])
        for size in (1, 10, 100, 1_000, 10_000)
    ]


def others(count: int) -> Iterator[dict[str, Any]]:
    """Rules for other requests: exact routes, some with segments, prefixes."""
    routes = ("/api/videos-{n}", "/api/{{id}}/posts-{n}", "/api/service-{n}/*", "/svc-{n}/{{id}}/videos")
    for number in range(count):
        yield rule(id=f"r{number}", route=routes[number % len(routes)].format(n=number), window_seconds=60)


def clients(stage: Stage) -> list[Served]:
    """Told from each other by their hosts."""
    store = stage.store()
    return [_of_clients(stage, size, store) for size in (1, 100, 10_000, 100_000)]


def _of_clients(stage: Stage, size: int, store: Any) -> Served:
    process = many_clients(stage, size, store.url)
    return Served(f"{size:,}", process.port, process.pid, hosts_of(size), [store])


def many_clients(stage: Stage, size: int, url: str, **more: Any) -> SidecarProcess:
    described = (_client([], f"c{n}", hosts=[f"c{n}.example.com"]) for n in range(size))
    return started(stage, {"default_client": "c0"} | more, url, described)


def hosts_of(size: int) -> list[bytes]:
    """A caller each of as many clients as there are, at most as many as there are callers."""
    step = max(1, size // IDENTIFIERS)
    return [request(TARGET, n, host=f"c{n * step % size}.example.com") for n in range(IDENTIFIERS)]


def identifiers(stage: Stage) -> list[Served]:
    """One sidecar and one store for all: counters that are there stay."""
    store = stage.store()
    process = stage.sidecar(config(rule(**ENDLESS)), store.url)
    return [
        Served(f"{size:,}", process.port, process.pid, Callers(size), [store])
        for size in (1, 1_000, 100_000, 1_000_000)
    ]


def rules_on_a_request(stage: Stage) -> list[Served]:
    store = stage.store()
    sizes = (1, 2, 4, 8, 16)
    rules = [rule(id=f"v{number}", window_seconds=60 + number) for number in range(max(sizes))]
    return [_served(stage, f"{size}", config(*rules[:size]), store.url, [store]) for size in sizes]


def connections(stage: Stage) -> list[Served]:
    store = stage.store()
    process = stage.sidecar(config(rule()), store.url)
    return [
        Served(f"{size}", process.port, process.pid, callers(), [store], connections=size)
        for size in (1, 8, 32, 128, 256)
    ]


def workers(stage: Stage) -> list[Served]:
    """All on the one core, and with as many connections for each: what they cost, not what they gain."""
    store = stage.store()
    served = []
    for size in (1, 2, 4):
        process = stage.sidecar(config(rule(), workers=size), store.url)
        served.append(Served(f"{size}", process.port, process.pid, callers(), [store], connections=32 * size))
    return served


def shards(stage: Stage) -> list[Served]:
    """A cluster with so many primaries, twelve clients spread over them by their names."""
    names = [f"c{number}" for number in range(12)]
    described = [_client([], name, hosts=[f"{name}.example.com"]) for name in names]
    return [_of_shards(stage, size, {}, described, hosts_of(len(names))) for size in (1, 2, 3)]


def shards_of_one_client(stage: Stage) -> list[Served]:
    """The same with one client, spread over them by its callers."""
    described = [_client([], shard_by="identifier")]
    return [_of_shards(stage, size, {"default_client": "c"}, described, callers()) for size in (1, 2, 3)]


def _of_shards(
    stage: Stage,
    size: int,
    configured: Mapping[str, Any],
    described: Iterable[dict[str, Any]],
    requests: Sequence[bytes],
) -> Served:
    cluster = stage.beside(ClusterServers(require("valkey"), primaries=size, replicas=0))
    process = started(stage, configured, cluster.url, described)
    return Served(f"{size}", process.port, process.pid, requests, list(cluster.servers))


DIMENSIONS: Mapping[str, Callable[[Stage], list[Served]]] = {
    "algorithm": algorithms,
    "rules of the client": rules_of_a_client,
    "clients": clients,
    "live identifiers": identifiers,
    "rules on the request": rules_on_a_request,
    "connections": connections,
    "workers": workers,
    "store shards": shards,
    "store shards, one client": shards_of_one_client,
}


def _client(rules: Iterable[dict[str, Any]], name: str = "c", **more: Any) -> dict[str, Any]:
    return {"id": name, "rules": [rule(), *rules], **more}


def _served(
    stage: Stage,
    name: str,
    configured: Mapping[str, Any],
    url: str,
    stores: list[Any],
    described: Iterable[dict[str, Any]] = (),
) -> Served:
    process = started(stage, configured, url, described)
    return Served(name, process.port, process.pid, callers(), stores)


def started(
    stage: Stage, configured: Mapping[str, Any], url: str, described: Iterable[dict[str, Any]]
) -> SidecarProcess:
    """With these clients in files of their own, as many teams have them."""
    lines = [f"- {json.dumps(client)}\n" for client in described]
    process = stage.prepared({**configured} | ({"clients_from": "clients.d/*.yaml"} if lines else {}), url)
    folder = process.file.parent / "clients.d"
    folder.mkdir()
    for begin in range(0, len(lines), _PER_FILE):
        text = "".join(lines[begin : begin + _PER_FILE])
        (folder / f"{begin:06}.yaml").write_text(f"clients:\n{text}")
    stage.begin(process, PATIENCE_SECONDS)
    return process
