"""Metrics: what is counted under which labels, and that traffic makes no new ones."""

from prometheus_client.parser import text_string_to_metric_families

from sidecar import __version__
from sidecar.domain.algorithms import Algorithm
from sidecar.domain.decision import Counted, Decision, Reason, Usage, decide
from sidecar.domain.request import RequestMetadata
from sidecar.domain.rule import Client, Mode, Rule
from sidecar.domain.ruleset import RuleSet
from sidecar.infrastructure.telemetry.metrics import Metrics
from sidecar.infrastructure.telemetry.observers import Observers
from tests.decisions import NOW_US, allowed, check, refused, rule, without_numbers

REQUEST = RequestMetadata(method="GET", target="/")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(metrics: Metrics) -> Samples:
    _, body = metrics.page()
    families = text_string_to_metric_families(body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for f in families
        for sample in f.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset(labels.items())))


def decided(*decisions: Decision) -> Metrics:
    metrics = Metrics(embedded=False)
    for decision in decisions:
        metrics.decided(REQUEST, decision)
    return metrics


def test_decisions_are_counted_by_result_client_rule_and_reason() -> None:
    """Those without a client or rule too, under empty ones."""
    metrics = decided(
        allowed(),
        allowed(),
        refused(),
        Decision(True, Reason.NO_POLICY),
        without_numbers(Reason.BLOCKED, allow=False, rule_id="b"),
    )

    def requests(result: str, client: str, rule_id: str, reason: str) -> float | None:
        labels = {"result": result, "client": client, "rule": rule_id, "reason": reason}
        return value(metrics, "rate_limit_requests_total", **labels)

    assert requests("allowed", "c", "r", "allowed") == 2
    assert requests("rejected", "c", "r", "quota_exceeded") == 1
    assert requests("allowed", "", "", "no_policy") == 1
    assert requests("rejected", "c", "b", "blocked") == 1


def test_a_decision_without_the_store_is_a_store_error() -> None:
    """Whichever way it went."""
    metrics = decided(
        without_numbers(Reason.STORAGE_UNAVAILABLE, allow=True),
        without_numbers(Reason.STORAGE_UNAVAILABLE, allow=False, rule_id="r"),
        allowed(),
    )
    assert value(metrics, "rate_limit_store_errors_total") == 2


def test_what_a_watching_rule_would_have_refused_is_counted_for_it() -> None:
    """And only that: neither what it admits, nor what an enforcing rule refuses."""
    checks = [check(rule("on")), check(rule("full"), shadow=True), check(rule("free"), shadow=True)]
    full, fits = Usage(False, 10, 5, 5), Usage(True, 1, 0, 5)
    metrics = decided(decide(checks, Counted(True, NOW_US, [fits, full, fits])))
    assert value(metrics, "rate_limit_shadow_refusals_total", client="c", rule="full") == 1
    assert value(metrics, "rate_limit_shadow_refusals_total", client="c", rule="free") is None
    assert value(metrics, "rate_limit_shadow_refusals_total", client="c", rule="on") is None


def test_what_is_refused_anyway_is_no_refusal_of_a_watching_rule() -> None:
    """It was not counted for it, whatever the rule had left."""
    checks = [check(rule("on")), check(rule("full"), shadow=True)]
    full = Usage(False, 10, 5, 5)
    metrics = decided(decide(checks, Counted(False, NOW_US, [full, full])))
    assert value(metrics, "rate_limit_shadow_refusals_total", client="c", rule="full") is None
    assert (
        value(
            metrics,
            "rate_limit_requests_total",
            result="rejected",
            client="c",
            rule="on",
            reason="quota_exceeded",
        )
        == 1
    )


def test_what_is_admitted_near_a_limit_is_counted_for_its_rule() -> None:
    """From four fifths of it on, the request included; who is refused, or only watched in vain, is not."""
    checks = [check(rule("near")), check(rule("far")), check(rule("full"), shadow=True)]
    usages = [Usage(True, 8, 0, 5), Usage(True, 7, 0, 5), Usage(False, 10, 5, 5)]
    metrics = decided(decide(checks, Counted(True, NOW_US, usages)), refused())
    assert value(metrics, "rate_limit_near_limit_total", client="c", rule="near") == 1
    for other in ("far", "full", "r"):
        assert value(metrics, "rate_limit_near_limit_total", client="c", rule=other) is None


def test_limits_and_windows_are_those_of_the_rules_in_force() -> None:
    """A token bucket's limit is its burst; rules that count nothing have none; a removed rule is gone."""
    metrics = Metrics(embedded=False)
    bucket = rule("bucket", algorithm=Algorithm.TOKEN_BUCKET, burst=50)
    shut = Rule(id="shut", route="/x", mode=Mode.BLOCK)
    metrics.rules(RuleSet([Client(id="c", rules=(rule("r", limit=7), bucket, shut))]))
    found = {key for key in samples(metrics) if key[0] == "rate_limit_limit"}
    assert len(found) == 2
    assert value(metrics, "rate_limit_limit", client="c", rule="r") == 7
    assert value(metrics, "rate_limit_limit", client="c", rule="bucket") == 50
    assert value(metrics, "rate_limit_window_seconds", client="c", rule="r") == 60
    metrics.rules(RuleSet([Client(id="c", rules=(bucket,))]))
    assert value(metrics, "rate_limit_limit", client="c", rule="r") is None


def test_labels_come_from_the_configuration_never_from_traffic() -> None:
    """A thousand callers, targets, hosts and methods make as many series as one."""
    metrics = decided(allowed(), allowed(used=10), refused())
    before = samples(metrics).keys()
    for n in range(1000):
        asked = RequestMetadata(
            method=f"M{n}",
            target=f"/{n}",
            host=f"h{n}",
            session_id=f"s{n}",
            user_id=f"u{n}",
            user_agent=f"a{n}",
            headers={f"x-{n}": f"v{n}"},
            request_id=f"i{n}",
        )
        metrics.decided(asked, allowed(used=n % 10, reset_us=n, of=check(identifier=f"=i{n}")))
        metrics.decided(asked, refused(retry_us=n, of=check(identifier=f"=i{n}")))
        metrics.store_answered(n / 1000)
        metrics.unreadable_address()
    assert samples(metrics).keys() == before


def test_the_time_of_the_store_is_a_histogram_in_seconds() -> None:
    """A decision takes well under a millisecond of it, so the buckets begin there."""
    metrics = Metrics(embedded=False)
    for seconds in (0.0002, 0.003, 7.0):
        metrics.store_answered(seconds)
    name = "rate_limit_redis_latency_seconds"
    assert value(metrics, f"{name}_count") == 3
    assert value(metrics, f"{name}_sum") == 7.0032
    assert value(metrics, f"{name}_bucket", le="0.00025") == 1
    assert value(metrics, f"{name}_bucket", le="0.005") == 2
    assert value(metrics, f"{name}_bucket", le="+Inf") == 3


def test_gauges_say_what_runs_and_whether_the_store_answers() -> None:
    """Until the first look at it, a store is not reachable."""
    metrics = Metrics(embedded=True)
    assert value(metrics, "rate_limit_store_reachable") == 0
    metrics.store_reachable(True)
    assert value(metrics, "rate_limit_store_reachable") == 1
    metrics.store_reachable(False)
    assert value(metrics, "rate_limit_store_reachable") == 0
    assert value(metrics, "rate_limit_store_embedded") == 1
    assert value(Metrics(embedded=False), "rate_limit_store_embedded") == 0
    assert value(metrics, "rate_limit_build_info", version=__version__) == 1


def test_several_observers_all_see_everything() -> None:
    """Metrics and log hear of the same decisions and addresses."""
    first, second = Metrics(embedded=False), Metrics(embedded=False)
    both = Observers(first, second)
    both.decided(REQUEST, without_numbers(Reason.STORAGE_UNAVAILABLE, allow=True))
    both.unreadable_address()
    for metrics in (first, second):
        assert value(metrics, "rate_limit_store_errors_total") == 1
        assert value(metrics, "rate_limit_unreadable_addresses_total") == 1


def test_failures_at_the_admin_port_are_counted_by_reason_alone() -> None:
    """However many addresses they come from."""
    metrics = Metrics(embedded=False)
    for number in range(100):
        metrics.admin_access_failed("wrong_key", f"192.0.2.{number}")
    metrics.admin_access_failed("missing", "192.0.2.1")
    assert value(metrics, "rate_limit_admin_auth_failures_total", reason="wrong_key") == 100
    assert value(metrics, "rate_limit_admin_auth_failures_total", reason="missing") == 1


def test_what_could_not_be_read_and_who_was_not_let_in_is_counted() -> None:
    """By dialect and by reason: never by address, of which callers have as many as they like."""
    metrics = Metrics(embedded=False)
    watching = Observers(metrics)
    for number in range(100):
        watching.peer_refused("peer", f"192.0.2.{number}")
    watching.peer_refused("secret", "127.0.0.1")
    watching.unreadable_target("nginx")
    watching.unreadable_target("nginx")
    watching.unreadable_address()
    assert value(metrics, "rate_limit_refused_peers_total", reason="peer") == 100
    assert value(metrics, "rate_limit_refused_peers_total", reason="secret") == 1
    assert value(metrics, "rate_limit_unreadable_targets_total", dialect="nginx") == 2
    assert value(metrics, "rate_limit_unreadable_addresses_total") == 1
    assert "192.0.2" not in metrics.page()[1].decode()


def test_a_preflight_that_is_not_counted_is_an_exempt_request() -> None:
    """So that an operator sees how many there are."""
    metrics = decided(without_numbers(Reason.EXEMPT, allow=True))
    labels = {"result": "allowed", "client": "c", "rule": "", "reason": "exempt"}
    assert value(metrics, "rate_limit_requests_total", **labels) == 1
