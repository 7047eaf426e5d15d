"""What happens without the store."""

from collections.abc import Sequence

from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.rule import OnUnavailable
from sidecar.domain.ruleset import RuleSet


def not_known_yet(decision: Decision, rule_set: RuleSet) -> bool:
    """Whether there may be a client for this request after all: the store was not read yet."""
    return decision.reason is Reason.NO_POLICY and decision.client_id is None and not rule_set.complete


def decide_without_store(checks: Sequence[Check], default: OnUnavailable) -> Decision:
    """By each enforcing rule's `on_unavailable`: any `deny` refuses. No numbers are invented.

    Without checks, because the store has not said yet which clients there are, it is the default that holds.
    """
    if not checks:
        return Decision(default is OnUnavailable.ALLOW, Reason.STORAGE_UNAVAILABLE)
    enforcing = [check.rule for check in checks if not check.shadow]
    denying = [rule for rule in enforcing if (rule.on_unavailable or default) is OnUnavailable.DENY]
    return Decision(
        allowed=not denying,
        reason=Reason.STORAGE_UNAVAILABLE,
        client_id=checks[0].client_id,
        rule_id=denying[0].id if denying else None,
    )
