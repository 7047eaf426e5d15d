"""All clients, indexed: from a request to its client, and on to the checks that it has to pass.

A `RuleSet` is immutable and swapped whole. Finding the rules of a request costs the same with 10 rules and
with 10,000 (`route_index.py` says what it does grow with).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from sidecar.domain.client_rules import ALL_RULES, MAX_CHECKS, ClientRules, RuleTrace, resets_of
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.policy import Policy
from sidecar.domain.request import RequestMetadata
from sidecar.domain.route import canonical_path
from sidecar.domain.rule import Client, Rule

__all__ = ["ALL_RULES", "MAX_CHECKS", "Explanation", "FoundBy", "Policy", "RuleSet", "RuleTrace"]

MAX_HOST = 255  # "*." and a name of 253 characters
#: What is remembered of methods and paths: so many, and none that is longer. Callers ask for the same few
#: again and again; a hostile one, who never asks twice for the same, takes no more memory than this.
_MET, _MET_LENGTH = 4096, 255
_NO_RESETS: Mapping[str, int] = {}


class FoundBy(StrEnum):
    """How the client of a request was looked for, last."""

    NAME = "name"
    HOST = "host"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which client, which rules and why, and what is to be counted or is decided without counting."""

    client: Client | None
    found_by: FoundBy
    path: str | None
    rules: list[RuleTrace]
    outcome: list[Check] | Decision
    #: A CORS preflight that is allowed without being counted.
    preflight: bool = False


class RuleSet:
    """Finds the client and the rules of a request. Later clients of the same id replace earlier ones."""

    def __init__(
        self,
        clients: Iterable[Client] = (),
        policy: Policy | None = None,
        resets: Mapping[tuple[str, str], int] | None = None,
        *,
        complete: bool = True,
        before: "RuleSet | None" = None,
    ) -> None:
        """What has not changed since the rule set `before` is taken from it, not compiled again."""
        self.policy = policy or Policy()
        #: Whether these are all clients; until the store was first read there may be more.
        self.complete = complete
        self._resets = resets or {}
        if before and not _differ_in_switch_alone(before.policy, self.policy):
            before = None
        self._clients = {client.id: self._compiled(client, before) for client in clients}
        self._hosts = {host: rules for rules in self._clients.values() for host in rules.client.hosts}
        self._wildcards = any(host.startswith("*.") for host in self._hosts)
        self._default = self._clients.get(self.policy.default_client or "")
        self._met = lru_cache(maxsize=_MET)(ClientRules.meet)

    def _compiled(self, client: Client, before: "RuleSet | None") -> ClientRules:
        resets = self._resets_of(client) if self._resets else _NO_RESETS
        found = before._clients.get(client.id) if before else None
        if found and found.resets == resets and (found.client is client or found.client == client):
            return found.under(self.policy) or ClientRules(client, self.policy, resets)
        return ClientRules(client, self.policy, resets)

    def _resets_of(self, client: Client) -> Mapping[str, int]:
        found = ((rule.id, self.resets(client.id, rule.id)) for rule in client.rules)
        return {rule_id: times for rule_id, times in found if times}

    def parts(self) -> list[Iterator[object]]:
        """What is in it, one by one."""
        return [iter(self._clients.values()), iter(self._hosts.values())]

    def client(self, client_id: str) -> Client | None:
        found = self._clients.get(client_id)
        return found.client if found else None

    def resets(self, client_id: str, rule_id: str) -> int:
        """How often this rule's counters were reset."""
        return resets_of(self._resets, client_id, rule_id)

    def counting_rules(self) -> Iterator[tuple[str, Rule]]:
        """All rules that count, each with its client's id."""
        for client_id, rules in self._clients.items():
            yield from ((client_id, rule) for rule in rules.client.rules if rule.counts)

    def checks_for(self, request: RequestMetadata) -> list[Check] | Decision:
        """The checks that the store has to count (at most 64), or the decision where nothing is counted."""
        rules = self._find_client(request)
        if rules is None:
            return Decision(True, Reason.NO_POLICY)
        method, path = request.method, request.target.partition("?")[0]
        meet = self._met if len(method) + len(path) <= _MET_LENGTH else ClientRules.meet
        return rules.checks_for(request, meet(rules, method, path))

    def explain(self, request: RequestMetadata) -> Explanation:
        """What `checks_for` does with this request, step by step."""
        rules, found_by = self._find_client(request), self._found_by(request)
        if rules is None:
            return Explanation(None, found_by, None, [], Decision(True, Reason.NO_POLICY))
        path = canonical_path(request.target, decode_slashes=self.policy.decode_slashes)
        outcome = self.checks_for(request)
        exempt = isinstance(outcome, Decision) and outcome.reason is Reason.EXEMPT and not outcome.rule_id
        preflight = exempt and rules.passes_preflight(request)
        return Explanation(rules.client, found_by, path, rules.explain(request, path), outcome, preflight)

    def _find_client(self, request: RequestMetadata) -> ClientRules | None:
        """A pinned or named client that is unknown never falls through to another one."""
        if request.client_id is not None:
            return self._clients.get(request.client_id)
        by_host = self._by_host(request.host)
        return self._default if by_host is None else by_host

    def _found_by(self, request: RequestMetadata) -> FoundBy:
        if request.client_id is not None:
            return FoundBy.NAME
        return FoundBy.DEFAULT if self._by_host(request.host) is None else FoundBy.HOST

    def _by_host(self, host: str) -> ClientRules | None:
        found = self._hosts.get(host)
        return self._by_wildcard(host) if found is None and self._wildcards else found

    def _by_wildcard(self, host: str) -> ClientRules | None:
        """The client with the longest `*.suffix` of the host."""
        host = host[-MAX_HOST:]  # a suffix that a rule can name is no longer; a hostile host may be 60 kB
        while "." in host:
            host = host.partition(".")[2]
            if found := self._hosts.get(f"*.{host}"):
                return found
        return None


def _differ_in_switch_alone(one: Policy, other: Policy) -> bool:
    """Or in nothing that a client's rules look at. Who switches limits off is in a hurry."""
    return replace(one, enforcement=other.enforcement, default_client=other.default_client) == other
