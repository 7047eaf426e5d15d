"""What the usual design costs: FastAPI on uvicorn, pydantic between the layers, one script call per request.

    python -m tests.bench.seed_design PORT UNIX_SOCKET_OF_REDIS

Small, but no strawman: rules are in memory, the event loop and the HTTP parser are compiled, there is no
access log, the answer has no body to be made, and the script is as short as a sliding window can be.
"""

import hashlib
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import redis.asyncio as redis
import uvicorn
from fastapi import FastAPI, Header, Request, Response
from pydantic import BaseModel, Field

SLIDING_WINDOW = """
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local count = redis.call('ZCARD', KEYS[1])
local allowed = count < limit and 1 or 0
if allowed == 1 then
    redis.call('ZADD', KEYS[1], now, ARGV[4])
    redis.call('PEXPIRE', KEYS[1], window)
    count = count + 1
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {allowed, limit - count, math.ceil((oldest[2] + window - now) / 1000)}
"""

IdentifierType = Literal["none", "session_id", "ip_user_agent"]
Next = Callable[[Request], Awaitable[Response]]


class Rule(BaseModel):
    id: str
    route: str
    method: str
    identifier_type: IdentifierType
    limit: int = Field(gt=0)
    window_seconds: int = Field(gt=0)


class EvaluateRequest(BaseModel):
    client_id: str
    route: str
    method: str
    session_id: str | None = None
    ip: str = ""
    user_agent: str = ""


class Decision(BaseModel):
    allowed: bool
    limit: int
    remaining: int
    reset: int
    rule_id: str


class CounterStore:
    def __init__(self, socket: str) -> None:
        self._script = redis.Redis(unix_socket_path=socket).register_script(SLIDING_WINDOW)

    async def hit(self, rule: Rule, key: str) -> Decision:
        now = time.time_ns() // 1_000_000
        window = rule.window_seconds * 1000
        found: Any = await self._script([key], [now, window, rule.limit, uuid.uuid4().hex])
        allowed, remaining, reset = found
        return Decision(
            allowed=bool(allowed), limit=rule.limit, remaining=remaining, reset=reset, rule_id=rule.id
        )


class AllowRequest:
    """The use case: the rule that matches, who is counted, the store's answer."""

    def __init__(self, rules: dict[str, list[Rule]], store: CounterStore) -> None:
        self._rules, self._store = rules, store

    async def __call__(self, asked: EvaluateRequest) -> Decision | None:
        for rule in self._rules.get(asked.client_id, []):
            if self._matches(rule, asked):
                key = f"rl:{{{asked.client_id}}}:{rule.id}:{self._who(rule, asked)}"
                return await self._store.hit(rule, key)
        return None

    def _matches(self, rule: Rule, asked: EvaluateRequest) -> bool:
        path = rule.route.removesuffix("*")
        fits = asked.route.startswith(path) if rule.route.endswith("*") else asked.route == rule.route
        return fits and rule.method in ("*", asked.method)

    def _who(self, rule: Rule, asked: EvaluateRequest) -> str:
        if rule.identifier_type == "session_id":
            return asked.session_id or "none"
        if rule.identifier_type == "ip_user_agent":
            return hashlib.sha256(f"{asked.ip}|{asked.user_agent}".encode()).hexdigest()[:16]
        return "none"


def application(socket: str) -> FastAPI:
    rule = Rule(
        id="videos",
        route="/api/videos",
        method="GET",
        identifier_type="session_id",
        limit=100_000,
        window_seconds=60,
    )
    allow = AllowRequest({"mon-service": [rule]}, CounterStore(socket))

    async def with_request_id(request: Request, call_next: Next) -> Response:
        response = await call_next(request)
        response.headers["X-Request-ID"] = request.headers.get("x-request-id") or uuid.uuid4().hex
        return response

    async def check(
        request: Request,
        path: str,
        x_session_id: Annotated[str | None, Header()] = None,
        x_client_ip: Annotated[str, Header()] = "",
        user_agent: Annotated[str, Header()] = "",
    ) -> Response:
        asked = EvaluateRequest(
            client_id="mon-service",
            route=f"/{path}",
            method=request.method,
            session_id=x_session_id,
            ip=x_client_ip,
            user_agent=user_agent,
        )
        return _answer(await allow(asked))

    app = FastAPI()
    app.middleware("http")(with_request_id)
    app.add_api_route("/authz/{path:path}", check, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    return app


def _answer(decision: Decision | None) -> Response:
    if decision is None:
        return Response()
    headers = {
        "X-RateLimit-Limit": str(decision.limit),
        "X-RateLimit-Remaining": str(decision.remaining),
        "X-RateLimit-Reset": str(decision.reset),
    }
    if not decision.allowed:
        headers |= {"Retry-After": str(decision.reset), "X-RateLimit-Rule": decision.rule_id}
    return Response(status_code=200 if decision.allowed else 429, headers=headers)


def main(port: int, socket: str) -> None:
    uvicorn.run(application(socket), host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
