"""What happens without the store."""

from collections.abc import Sequence

from sidecar.application.local import LocalCounters
from sidecar.domain.decision import Check, Decision, Reason, decide
from sidecar.domain.rule import OnUnavailable
from sidecar.domain.ruleset import RuleSet


def not_known_yet(decision: Decision, rule_set: RuleSet) -> bool:
    """Whether there may be a client for this request after all: the store was not read yet."""
    return decision.reason is Reason.NO_POLICY and decision.client_id is None and not rule_set.complete


class WithoutStore:
    """Decides by each enforcing rule's `on_unavailable`; `default` is that of rules without their own.

    Any `deny` refuses, else a `local` rule whose share is used up, else the request is allowed. Of what is
    allowed no numbers are invented: no counter says what is left of the limit.
    """

    def __init__(self, local: LocalCounters) -> None:
        self.default = OnUnavailable.ALLOW
        self._local = local

    def decide(self, checks: Sequence[Check], *, charge: bool = True) -> Decision:
        """Without checks, because the store has not said yet which clients there are, the default holds."""
        if not checks:
            return Decision(self.default is not OnUnavailable.DENY, Reason.STORAGE_UNAVAILABLE)
        enforcing = [check for check in checks if not check.shadow]
        client_id = checks[0].client_id
        for check in enforcing:
            if self._said(check) is OnUnavailable.DENY:
                return Decision(False, Reason.STORAGE_UNAVAILABLE, client_id, check.rule.id)
        local = [check for check in enforcing if self._said(check) is OnUnavailable.LOCAL]
        if local and (refused := self._refused(local, charge=charge)):
            return refused
        return Decision(True, Reason.STORAGE_UNAVAILABLE, client_id)

    def _said(self, check: Check) -> OnUnavailable:
        return check.rule.on_unavailable or self.default

    def _refused(self, checks: Sequence[Check], *, charge: bool) -> Decision | None:
        shared, counted = self._local.hit(checks, charge=charge)
        if counted.admitted:
            return None
        return decide(shared, counted, refused=Reason.LOCAL_QUOTA_EXCEEDED)
