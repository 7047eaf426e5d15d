"""Who is compared: all answer the same requests, as Envoy asks them, on one core."""

import json
from typing import Any

from tests.bench.load import apart, closed, request
from tests.bench.stage import IDENTIFIERS, OTHER_CORES, Served, Stage
from tests.parts import StoreServer

TARGET = "/authz/api/videos"
CONSTANT, SEED = "aiohttp, constant answer", "the seed's design"
SIDECAR, SIDECAR_TCP = "sidecar", "sidecar, store over TCP"
BUCKETS = "sidecar, token_bucket"
EVALUATE = "POST /v1/evaluate"
REFUSING, FLOODED = "sidecar, refusing", "sidecar, refusing one caller"


def rule(**more: Any) -> dict[str, Any]:
    """One that never refuses here, exact, and counts sessions."""
    return {
        "id": "videos",
        "route": "/api/videos",
        "method": "GET",
        "identifier_type": "session_id",
        "algorithm": "sliding_window",
        "limit": 100_000,
        "window_seconds": 60,
    } | more


def config(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"default_client": "mon-service", "clients": [{"id": "mon-service", "rules": list(rules)}]} | more


def callers(count: int = IDENTIFIERS, target: str = TARGET) -> list[bytes]:
    return [request(target, number) for number in range(count)]


def contenders(stage: Stage) -> list[Served]:
    local, far = stage.store(), stage.store(tcp=True)
    return [
        constant_answer(stage),
        seed_design(stage, local),
        counting(stage, SIDECAR, local),
        counting(stage, BUCKETS, local, id="buckets", algorithm="token_bucket"),
        counting(stage, SIDECAR_TCP, far),
        *refusing(stage, local),
    ]


def constant_answer(stage: Stage) -> Served:
    return Served(CONSTANT, *stage.program("constant_answer"), callers())


def seed_design(stage: Stage, store: StoreServer) -> Served:
    return Served(SEED, *stage.program("seed_design", store.socket), callers(), [store])


def counting(stage: Stage, name: str, store: StoreServer, **more: Any) -> Served:
    process = stage.sidecar(config(rule(**more)), store.url)
    return Served(name, process.port, process.pid, callers(), [store])


def evaluating(stage: Stage) -> Served:
    """Asked by callers that are no proxy."""
    store = stage.store()
    process = stage.sidecar(config(rule()), store.url)
    asked = [_evaluate(number) for number in range(IDENTIFIERS)]
    return Served(EVALUATE, process.port, process.pid, asked, [store])


def _evaluate(number: int) -> bytes:
    identifier = {"type": "session_id", "session_id": f"session-{number}"}
    asked = {"client_id": "mon-service", "route": "/api/videos", "method": "GET", "identifier": identifier}
    body = json.dumps(asked).encode()
    head = "POST /v1/evaluate HTTP/1.1\r\nHost: sidecar\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def refusing(stage: Stage, store: StoreServer) -> list[Served]:
    """All callers have used up their one request of the day; and one of them alone, who does not stop."""
    spent = rule(id="spent", algorithm="fixed_window", limit=1, window_seconds=31_536_000)
    process = stage.sidecar(config(spent), store.url)
    everybody = callers()
    served = Served(REFUSING, process.port, process.pid, everybody, [store], b"429")
    apart(OTHER_CORES, closed, served.load(1.0))
    return [served, Served(FLOODED, process.port, process.pid, everybody[:1], [store], b"429")]
