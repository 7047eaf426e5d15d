"""The state of one rule after a request, and the decision that the states of all rules fold into.

Times are integer microseconds by the store's clock; the edge rounds them up to seconds, once.
"""

from collections.abc import Sequence
from enum import StrEnum

from sidecar.domain.refusal import Refusal
from sidecar.domain.rule import Rule
from sidecar.domain.values import per_request


class Reason(StrEnum):
    """Why a request was allowed or refused."""

    ALLOWED = "allowed"
    QUOTA_EXCEEDED = "quota_exceeded"
    NO_POLICY = "no_policy"
    EXEMPT = "exempt"
    BLOCKED = "blocked"
    IDENTIFIER_MISSING = "identifier_missing"
    ENFORCEMENT_OFF = "enforcement_off"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    #: Refused by this process's share of a limit, while the store is away.
    LOCAL_QUOTA_EXCEEDED = "local_quota_exceeded"


@per_request()
class Check:
    """One rule to be counted for one identifier: what the store needs to know.

    `limit` is the identifier's own where the rule overrides it; `capacity` is what may be used at once
    (a token bucket's burst, else the limit); `cost` is what this request would use of it.
    """

    client_id: str
    rule: Rule
    identifier: str
    limit: int
    capacity: int
    cost: int
    shadow: bool = False
    #: How often the rule's counters were reset: each time others are begun.
    resets: int = 0
    #: Who is counted if this identifier has no counter yet, since the rule has too many of them.
    instead: str | None = None
    #: Which part of the client's counters this one is in, where they are spread over a cluster.
    shard: str = ""

    @property
    def tag(self) -> str:
        """What all checks of one step have in common: a cluster keeps the counters of a tag together."""
        return self.client_id + self.shard


@per_request()
class Usage:
    """What a counter says after one check, in units and microseconds.

    `retry_us` is how long until the same cost would fit if nothing else were charged: 0 when it did, `None`
    when it never can. `reset_us` is how long until more remains, 0 when nothing is used.
    """

    fits: bool
    used: int
    retry_us: int | None
    reset_us: int


@per_request()
class Counted:
    """What the store answers: whether all enforcing checks fit, its clock, each check's usage in order."""

    admitted: bool
    now_us: int
    usages: Sequence[Usage]


@per_request()
class RuleState:
    """One rule's own numbers for one request."""

    check: Check
    usage: Usage

    @property
    def remaining(self) -> int:
        left = self.check.capacity - self.usage.used
        return left if left > 0 else 0

    @property
    def requests_left(self) -> int:
        """How many more requests like this one fit now."""
        return self.remaining // self.check.cost


@per_request()
class Decision:
    """Allowed or not, with what a caller needs to know.

    `shown` is the state whose numbers go into the headers; `None` where no rule's numbers apply.
    `rule_id` names the rule that decided, also where it has no numbers (`blocked`); `refusal` is how that
    rule wants it said.
    """

    allowed: bool
    reason: Reason
    client_id: str | None = None
    rule_id: str | None = None
    now_us: int = 0
    shown: RuleState | None = None
    states: tuple[RuleState, ...] = ()
    refusal: Refusal | None = None

    @property
    def without_store(self) -> bool:
        return self.reason in _WITHOUT_STORE

    @property
    def is_quota(self) -> bool:
        """Refused because a limit is used up, so that waiting helps."""
        return self.reason in _QUOTA

    @property
    def violated(self) -> list[str]:
        """The ids of the rules that refused."""
        enforcing: list[str] = []
        if len(self.states) > 1:
            enforcing = [s.check.rule.id for s in self.states if not s.check.shadow and not s.usage.fits]
        return enforcing or ([self.rule_id] if self.rule_id else [])


_ALLOWED, _EXCEEDED = Reason.ALLOWED, Reason.QUOTA_EXCEEDED
_WITHOUT_STORE = frozenset((Reason.STORAGE_UNAVAILABLE, Reason.LOCAL_QUOTA_EXCEEDED))
_QUOTA = frozenset((Reason.QUOTA_EXCEEDED, Reason.LOCAL_QUOTA_EXCEEDED))


def decide(checks: Sequence[Check], counted: Counted, refused: Reason = Reason.QUOTA_EXCEEDED) -> Decision:
    """Fold the states of all rules into the one answer (`docs/decisions.md` says which rule is shown)."""
    admitted = counted.admitted
    shown: RuleState | None
    if len(checks) == 1:
        states: tuple[RuleState, ...] = (RuleState(checks[0], counted.usages[0]),)
        shown = None if checks[0].shadow else states[0]
    else:
        states = tuple(map(RuleState, checks, counted.usages))
        shown = _shown(states, admitted=admitted)
    rule = None if shown is None else shown.check.rule
    # By position: this is made for each request, and names cost as much again.
    return Decision(
        admitted,
        _ALLOWED if admitted else refused,
        checks[0].client_id,
        None if rule is None else rule.id,
        counted.now_us,
        shown,
        states,
        None if rule is None or admitted else rule.response,
    )


def refused_by(check: Check, usage: Usage, now_us: int) -> Decision:
    """What `decide` says where one rule is asked, which enforces, and refuses."""
    state, rule = RuleState(check, usage), check.rule
    return Decision(False, _EXCEEDED, check.client_id, rule.id, now_us, state, (state,), rule.response)


def _shown(states: Sequence[RuleState], *, admitted: bool) -> RuleState | None:
    enforcing = [state for state in states if not state.check.shadow]
    if admitted:
        return min(enforcing, key=_tightest, default=None)
    return max((state for state in enforcing if not state.usage.fits), key=_longest_retry)


def _tightest(state: RuleState) -> tuple[int, int, str]:
    return state.requests_left, -state.usage.reset_us, state.check.rule.id


def _longest_retry(state: RuleState) -> float:
    return float("inf") if state.usage.retry_us is None else state.usage.retry_us
