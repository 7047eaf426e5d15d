"""`POST /v1/explain`: a described request, and why it is answered as it is."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from sidecar.application.explain import Explained, ExplainedState, Explainer
from sidecar.domain.algorithms import SECOND_US
from sidecar.domain.decision import Decision
from sidecar.domain.request import RequestMetadata
from sidecar.domain.ruleset import RuleTrace
from sidecar.infrastructure.admin.answers import json_answer
from sidecar.infrastructure.validation import dump


class ExplainRoutes:
    """`read` takes a described request from a body, `answer` says with which status and headers a proxy would
    be answered.
    """

    def __init__(
        self,
        explainer: Explainer,
        read: Callable[[bytes], RequestMetadata],
        answer: Callable[[Decision], tuple[int, dict[str, str]]],
    ) -> None:
        self._explainer = explainer
        self._read = read
        self._answer = answer

    async def explain(self, request: web.Request) -> web.Response:
        explained = await self._explainer.explain(self._read(await request.read()))
        steps, decision = explained.steps, explained.decision
        status, headers = self._answer(decision)
        body = {
            "client": steps.client.id if steps.client else None,
            "found_by": steps.found_by,
            "path": steps.path,
            "preflight": steps.preflight,
            "rules": [_rule(trace, explained) for trace in steps.rules],
            "allowed": decision.allowed,
            "reason": decision.reason,
            "rule_id": decision.rule_id,
            "status": status,
            "headers": headers,
        }
        return json_answer(200, body)


def _rule(trace: RuleTrace, explained: Explained) -> dict[str, Any]:
    state = explained.states.get(trace.rule.id)
    return {
        "id": trace.rule.id,
        "route": trace.rule.route,
        "method": dump(trace.rule)["method"],
        "mode": trace.rule.mode,
        "applies": trace.applies,
        "left_out_by": trace.left_out_by,
        "shadow": trace.shadow,
        "counter": _counter(state) if state else None,
    }


def _counter(shown: ExplainedState) -> dict[str, Any]:
    usage, check = shown.state.usage, shown.state.check
    return {
        "identifier": shown.identifier,
        "key": shown.key,
        "limit": check.capacity,
        "cost": check.cost,
        "used": usage.used,
        "remaining": shown.state.remaining,
        "fits": usage.fits,
        "retry_seconds": None if usage.retry_us is None else usage.retry_us / SECOND_US,
        "reset_seconds": usage.reset_us / SECOND_US,
    }
