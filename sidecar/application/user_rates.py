"""The limit of each user at each endpoint, for callers that name both themselves.

Every user is counted as a client of its own: a cluster spreads users over its slots, and the counters of one
are found without a look at those of the others. What is observed has the one client `CLIENT`, since labels of
metrics come from the configuration, never from traffic.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sidecar.application.failure import WithoutStore
from sidecar.application.ports import CounterStore, Observer, StoreUnavailable
from sidecar.application.searching import Searches
from sidecar.domain.decision import Check, Decision, Reason, decide
from sidecar.domain.errors import InvalidValue
from sidecar.domain.identity import encode
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Enforcement, Rule
from sidecar.domain.ruleset import MAX_CHECKS

#: No configured client can have this id, nor that of a user (`/rate/42`): ids have no slash.
CLIENT = "/rate"
MAX_USER = 2**63 - 1
MAX_ENDPOINT = 128
_USER = re.compile("0*([1-9][0-9]{0,18})")


def user_number(written: str) -> int | None:
    """The user that these digits name, leading zeros or not; `None` for what names nobody."""
    match = _USER.fullmatch(written)
    number = int(match[1]) if match else 0
    return number if 0 < number <= MAX_USER else None


def endpoint_problem(endpoint: str) -> str | None:
    """What is wrong with an endpoint, if anything: it is text, of which no character means anything."""
    if not 1 <= len(endpoint) <= MAX_ENDPOINT:
        return f"expected 1 to {MAX_ENDPOINT} characters, got {len(endpoint)}"
    if any("\ud800" <= character <= "\udfff" for character in endpoint):
        return "expected text in UTF-8"
    return None


def one_endpoint(given: Sequence[str]) -> str:
    """The endpoint in a query; raises `InvalidValue`, also for two of which either could be meant."""
    if len(given) != 1:
        problem = f"expected it once, got it {len(given)} times" if given else "is required"
        raise InvalidValue([("endpoint", problem)])
    if found := endpoint_problem(given[0]):
        raise InvalidValue([("endpoint", found)])
    return given[0]


def rate_rule(limit: int, window_seconds: int) -> Rule:
    """The one rule that all are counted by."""
    return Rule(
        id="check",
        route="/rate/check",
        method="POST",
        # What an identifier names: the user is in the client.
        identifier_type="header:endpoint",
        limit=limit,
        window_seconds=window_seconds,
    )


@dataclass(frozen=True, slots=True)
class UserEndpoint:
    """Who is counted: a user (1 to `MAX_USER`) at an endpoint without an `endpoint_problem`."""

    user: int
    endpoint: str


class UserRates:
    """Checks, shows and resets. `rule` and what stands beside it are replaced between two requests.

    Resets go through `searches`, everything else through `counters`.
    """

    def __init__(
        self, counters: CounterStore, observer: Observer, searches: Searches, without_store: WithoutStore
    ) -> None:
        self.rule = rate_rule(10, 60)
        self.enforcement = Enforcement.ON
        self._without_store = without_store
        self._counters = counters
        self._observer = observer
        self._searches = searches

    async def check(self, who: UserEndpoint, request_id: str = "") -> Decision:
        """Charge one request if it fits. Always a decision, also without the store."""
        decision = await self._decided(who, charge=True)
        request = RequestMetadata(
            method="POST",
            target="/rate/check",
            client_id=CLIENT,
            has_address=False,
            user_id=str(who.user),
            request_id=request_id,
        )
        self._observer.decided(request, decision)
        return decision

    async def status(self, who: UserEndpoint) -> Decision:
        """What `check` would decide now; charges nothing, and is no request that was decided."""
        return await self._decided(who, charge=False)

    async def reset(self, user: int, endpoint: str | None = None) -> int:
        """Forget one endpoint of a user, or all; how many requests counted until then.

        Goes through the store in steps, each of them bounded. Raises `TooManySearches`, and
        `StoreUnavailable`; what it has forgotten by then stays forgotten, and it can be asked again.
        """
        rule = self.rule
        if endpoint is not None:
            return await self._forget([_check(user, encode(endpoint), rule)])
        forgotten = 0
        async with self._searches.turn():
            async for found, _ in self._searches.pages(_client(user), rule, 0):
                # A search may find one counter several times.
                forgotten += await self._forget(_check(user, text, rule) for text in dict.fromkeys(found))
        return forgotten

    async def _decided(self, who: UserEndpoint, *, charge: bool) -> Decision:
        if self.enforcement is Enforcement.OFF:
            return Decision(True, Reason.ENFORCEMENT_OFF, CLIENT)
        check = _check(who.user, encode(who.endpoint), self.rule)
        check = replace(check, shadow=self.enforcement is Enforcement.SHADOW)
        observed = [replace(check, client_id=CLIENT)]
        try:
            counted = await self._counters.hit([check], charge=charge)
        except StoreUnavailable:
            decision = self._without_store.decide([check], charge=charge)
            return replace(decision, client_id=CLIENT)
        return decide(observed, counted)

    async def _forget(self, checks: Iterable[Check]) -> int:
        remaining, used = list(checks), 0
        while remaining:
            some, remaining = remaining[:MAX_CHECKS], remaining[MAX_CHECKS:]
            counted = await self._searches.counters.hit(some, charge=False)
            await self._searches.counters.forget(some)
            used += sum(usage.used for usage in counted.usages)
        return used


def _client(user: int) -> str:
    return f"{CLIENT}/{user}"


def _check(user: int, identifier: str, rule: Rule) -> Check:
    terms = rule.terms()
    return Check(_client(user), rule, identifier, terms.limit, terms.capacity, rule.cost)
