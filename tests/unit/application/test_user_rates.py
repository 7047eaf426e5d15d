"""The use case behind the per-user, per-endpoint API, its counters in memory."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.application.failure import WithoutStore
from sidecar.application.local import LocalCounters
from sidecar.application.ports import StoreUnavailable
from sidecar.application.searching import Searches
from sidecar.application.user_rates import MAX_USER, UserEndpoint, UserRates, rate_rule
from sidecar.domain.counters import MemoryCounters
from sidecar.domain.decision import Check, Counted, Decision, Reason
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Enforcement, OnUnavailable, Rule
from sidecar.domain.ruleset import MAX_CHECKS
from tests.decisions import NOW_US

HERE = UserEndpoint(1, "/here")
#: How many identifiers a step of the search finds.
STEP = 100


@dataclass
class Store:
    """A `CounterStore` at a standing clock that finds identifiers in steps, some of them twice."""

    away: bool = False
    counters: dict[tuple[str, str], MemoryCounters] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)

    async def hit(self, checks: Sequence[Check], *, charge: bool = True) -> Counted:
        if self.away:
            raise StoreUnavailable("away")
        self.calls.append(len(checks))
        apart = [
            self.counters.setdefault(_key(check), MemoryCounters()).hit([check], NOW_US, charge=charge)
            for check in checks
        ]
        return Counted(
            all(one.admitted for one in apart), NOW_US, [usage for one in apart for usage in one.usages]
        )

    def hit_then(
        self, checks: Sequence[Check], then: Callable[[Counted | Exception], None], *, charge: bool = True
    ) -> None:
        raise NotImplementedError

    async def forget(self, checks: Sequence[Check]) -> int:
        self.calls.append(len(checks))
        return sum(self.counters.pop(_key(check), None) is not None for check in checks)

    async def identifiers(
        self, client_id: str, rule: Rule, resets: int, cursor: int, *, spread: bool = False
    ) -> tuple[int, list[str]]:
        found = sorted(identifier for client, identifier in self.counters if client == client_id)
        page = found[:STEP]
        return int(len(found) > STEP), page + page[:5]

    async def live_identifiers(self, client_id: str, rule: Rule, resets: int, seen: Collection[str]) -> int:
        raise NotImplementedError

    def key_beginning(self, tag: str, rule: Rule, resets: int) -> str:
        raise NotImplementedError


def _key(check: Check) -> tuple[str, str]:
    return check.client_id, check.identifier


@dataclass
class Seen:
    """An `Observer`."""

    decided_requests: list[tuple[RequestMetadata, Decision]] = field(default_factory=list)

    def decided(self, request: RequestMetadata, decision: Decision) -> None:
        self.decided_requests.append((request, decision))


def rates(**attributes: Any) -> tuple[UserRates, Store, Seen]:
    store, seen = Store(), Seen()
    without_store = WithoutStore(LocalCounters())
    without_store.default = attributes.pop("on_unavailable", OnUnavailable.ALLOW)
    made = UserRates(store, seen, Searches(store), without_store)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made, store, seen


async def checked(made: UserRates, who: UserEndpoint, times: int) -> list[bool]:
    return [(await made.check(who)).allowed for _ in range(times)]


async def test_the_eleventh_check_within_a_minute_is_refused() -> None:
    """The limit that holds where nothing is configured."""
    made, _, _ = rates()
    assert await checked(made, HERE, 11) == [True] * 10 + [False]


async def test_users_and_endpoints_are_counted_apart() -> None:
    """No pair shares a counter with another one, whatever is in the endpoint."""
    made, _, _ = rates(rule=rate_rule(1, 60))
    endpoints = [
        "a",
        "A",
        "a ",
        "=a",
        "a:b",
        "a|b",
        "|",
        ":",
        "1",
        "é",
        "e\u0301",
        "x" * 128,
        ":" * 128,
        "\0",
        "~",
        "#",
    ]
    pairs = [UserEndpoint(user, text) for user in (1, 11, 111, MAX_USER) for text in endpoints]
    assert [await checked(made, pair, 2) for pair in pairs] == [[True, False]] * len(pairs)


async def test_a_look_says_what_a_check_would_get_and_charges_nothing() -> None:
    """Also when the limit is used up."""
    made, _, seen = rates(rule=rate_rule(2, 60))
    for used in (0, 1, 2):
        for _ in range(3):
            looked = await made.status(HERE)
            assert looked.shown
            assert (looked.shown.usage.used, looked.allowed) == (used, used < 2)
        await made.check(HERE)
    assert len(seen.decided_requests) == 3


async def test_what_is_observed_has_one_client_for_all_users() -> None:
    """Labels of metrics take their values from the configuration, never from traffic."""
    made, _, seen = rates(enforcement=Enforcement.SHADOW)
    for user in range(1, 5):
        await made.check(UserEndpoint(user, "x"), "request-1")
    assert {decision.client_id for _, decision in seen.decided_requests} == {"/rate"}
    states = [state for _, decision in seen.decided_requests for state in decision.states]
    assert {state.check.client_id for state in states} == {"/rate"}
    assert {request.request_id for request, _ in seen.decided_requests} == {"request-1"}


@pytest.mark.parametrize(
    ("enforcement", "reason", "counted"),
    [(Enforcement.OFF, Reason.ENFORCEMENT_OFF, 0), (Enforcement.SHADOW, Reason.ALLOWED, 10)],
)
async def test_the_global_switch_holds_here_too(
    enforcement: Enforcement, reason: Reason, counted: int
) -> None:
    """`off` looks at nothing; `shadow` counts and refuses nothing."""
    made, _, _ = rates(enforcement=enforcement)
    decisions = [await made.check(HERE) for _ in range(12)]
    assert {(decision.allowed, decision.reason, decision.shown) for decision in decisions} == {
        (True, reason, None)
    }
    made.enforcement = Enforcement.ON
    shown = (await made.status(HERE)).shown
    assert shown
    assert shown.usage.used == counted


@pytest.mark.parametrize(
    ("on_unavailable", "allow"), [(OnUnavailable.ALLOW, True), (OnUnavailable.DENY, False)]
)
async def test_without_the_store_it_is_decided_as_everywhere(
    on_unavailable: OnUnavailable, allow: bool
) -> None:
    """And observed; only a reset has to say that it could not."""
    made, store, seen = rates(on_unavailable=on_unavailable)
    store.away = True
    for decision in (await made.check(HERE), await made.status(HERE)):
        assert (decision.allowed, decision.reason) == (allow, Reason.STORAGE_UNAVAILABLE)
        assert (decision.client_id, decision.shown) == ("/rate", None)
    assert len(seen.decided_requests) == 1
    with pytest.raises(StoreUnavailable):
        await made.reset(1, "/here")


async def test_a_reset_forgets_one_endpoint_or_all_of_the_user_alone() -> None:
    """And says how many requests it forgot."""
    made, _, _ = rates()
    for who, times in ((HERE, 3), (UserEndpoint(1, "a|b"), 2), (UserEndpoint(11, "/here"), 4)):
        await checked(made, who, times)
    assert [await made.reset(1, "/here"), await made.reset(1, "/here"), await made.reset(1)] == [3, 0, 2]
    assert await _used(made, [HERE, UserEndpoint(1, "a|b"), UserEndpoint(11, "/here")]) == [0, 0, 4]


async def test_more_requests_than_the_limit_are_forgotten_after_it_was_lowered() -> None:
    """Lowering a limit keeps what was counted."""
    made, _, _ = rates()
    await checked(made, HERE, 10)
    made.rule = rate_rule(2, 60)
    assert await made.reset(1) == 10


async def test_a_reset_of_all_goes_through_every_step_and_counts_nothing_twice() -> None:
    """However many endpoints there are, no call carries more than one may."""
    made, store, _ = rates()
    number = 3 * STEP + 7
    for index in range(number):
        await made.check(UserEndpoint(1, f"/{index}"))
    assert await made.reset(1) == number
    assert max(store.calls) == MAX_CHECKS
    assert await made.reset(1) == 0


async def test_a_reset_leaves_the_store_of_decisions_alone() -> None:
    """However long it searches, no decision waits behind it; checks and looks of callers are decisions."""
    deciding, looking = Store(away=True), Store()
    made = UserRates(deciding, Seen(), Searches(looking), WithoutStore(LocalCounters()))
    assert [await made.reset(1), await made.reset(1, "/here")] == [0, 0]
    deciding.away, looking.away = False, True
    assert await checked(made, HERE, 1) == [True]
    assert (await made.status(HERE)).reason is Reason.ALLOWED
    assert (len(deciding.calls), len(looking.calls)) == (2, 2)


async def _used(made: UserRates, of: Iterable[UserEndpoint]) -> list[int]:
    shown = [(await made.status(who)).shown for who in of]
    return [state.usage.used for state in shown if state]
