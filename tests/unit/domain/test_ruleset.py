"""From a request to its client, its rules, and the checks or the decision that they come to."""

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain.client_rules import ClientRules
from sidecar.domain.decision import Check, Decision, Reason
from sidecar.domain.request import RequestMetadata, canonical_host
from sidecar.domain.route import RoutePattern, canonical_path
from sidecar.domain.rule import Client, Enforcement, Mode, OnMissing, Rule
from sidecar.domain.ruleset import MAX_CHECKS, Policy, RuleSet


def rule(rule_id: str, route: str = "/*", **fields: Any) -> Rule:
    counted = {"identifier_type": "none", "limit": 10, "window_seconds": 60}
    numbers = counted if fields.get("mode", Mode.ENFORCE) in (Mode.ENFORCE, Mode.SHADOW) else {}
    return Rule(**{"id": rule_id, "route": route, **numbers, **fields})


def exempt(rule_id: str, route: str, **fields: Any) -> Rule:
    return rule(rule_id, route, mode=Mode.EXEMPT, **fields)


def block(rule_id: str, route: str, **fields: Any) -> Rule:
    return rule(rule_id, route, mode=Mode.BLOCK, **fields)


def shadow(rule_id: str, route: str = "/*", **fields: Any) -> Rule:
    return rule(rule_id, route, mode=Mode.SHADOW, **fields)


def ask(
    rules: list[Rule], target: str = "/", method: str = "GET", *, policy: Policy | None = None, **request: Any
) -> list[Check] | Decision:
    """What one client with these rules makes of a request."""
    asked = RequestMetadata(method=method, target=target, client_id="c", **request)
    return RuleSet([Client(id="c", rules=tuple(rules))], policy).checks_for(asked)


def ids(answer: list[Check] | Decision) -> list[str]:
    assert isinstance(answer, list), answer
    return [check.rule.id for check in answer]


def verdict(answer: list[Check] | Decision) -> tuple[bool, Reason, str | None]:
    assert isinstance(answer, Decision), answer
    return answer.allowed, answer.reason, answer.rule_id


HOSTS = {
    "exact": ("api.example.com", "[2001:db8::1]"),
    "wide": ("*.example.com",),
    "narrow": ("*.eu.example.com",),
    "fallback": (),
}
CLIENTS = [Client(id=client_id, hosts=hosts, rules=(rule("r"),)) for client_id, hosts in HOSTS.items()]


def client_of(host: str = "", client_id: str | None = None, default: str | None = "fallback") -> str | None:
    request = RequestMetadata(method="GET", target="/", host=canonical_host(host), client_id=client_id)
    answer = RuleSet(CLIENTS, Policy(default_client=default)).checks_for(request)
    return answer.client_id if isinstance(answer, Decision) else answer[0].client_id


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("api.example.com", "exact"),
        ("API.Example.Com.:8080", "exact"),
        ("[2001:DB8::1]:443", "exact"),
        ("www.example.com", "wide"),
        ("a.b.example.com", "wide"),
        ("x.eu.example.com", "narrow"),
        ("x.y.eu.example.com", "narrow"),
        ("eu.example.com", "wide"),
        ("user@api.example.com:80", "exact"),
        ("example.com", "fallback"),
        ("evilexample.com", "fallback"),
        ("api.example.com.evil.net", "fallback"),
        ("*.example.com", "wide"),
        ("", "fallback"),
        (".", "fallback"),
    ],
)
def test_a_host_finds_its_client(host: str, client: str) -> None:
    """Exact before the longest wildcard before the default, without case, port and final dot."""
    assert client_of(host) == client


def test_a_pinned_client_is_taken_whatever_the_host() -> None:
    """The operator has said so in the proxy's configuration."""
    assert client_of("api.example.com", "wide") == "wide"


def test_an_unknown_pinned_client_never_falls_through() -> None:
    """Neither to the host's client nor to the default."""
    assert client_of("api.example.com", "unknown") is None
    assert client_of("api.example.com", "") is None


@pytest.mark.parametrize("default", [None, "unknown", ""])
def test_no_client_means_no_policy(default: str | None) -> None:
    """Allowed, and said so."""
    request = RequestMetadata(method="GET", target="/", host="other.net")
    answer = RuleSet(CLIENTS, Policy(default_client=default)).checks_for(request)
    assert verdict(answer) == (True, Reason.NO_POLICY, None)


def test_a_host_of_60_kilobytes_finds_its_client() -> None:
    """Its labels are not tried one by one."""
    rules = RuleSet([Client(id="c", hosts=("*." + "a." * 125 + "bc",), rules=(rule("r"),))])
    request = RequestMetadata(method="GET", target="/", host="a." * 30_000 + "bc")
    assert ids(rules.checks_for(request)) == ["r"]


def test_a_later_client_replaces_an_earlier_one() -> None:
    """What the API has changed stands above the file."""
    rules = RuleSet([Client(id="c", rules=(rule("old"),)), Client(id="c", rules=(rule("new"),))])
    assert ids(rules.checks_for(RequestMetadata(method="GET", target="/", client_id="c"))) == ["new"]
    assert rules.client("c") == Client(id="c", rules=(rule("new"),))
    assert rules.client("d") is None


ALL = [
    rule("all"),
    rule("prefix", "/api/*"),
    rule("longer", "/api/videos*"),
    rule("segments", "/api/{kind}"),
    rule("exact", "/api/videos"),
    rule("exact-get", "/api/videos", method="GET"),
    rule("exact-put", "/api/videos", method=("PUT", "POST")),
    rule("other", "/other"),
]


def test_all_matching_rules_apply_most_specific_first() -> None:
    """Exact, segments, the longer prefix; a named method before any."""
    assert ids(ask(ALL, "/api/videos?x=1")) == ["exact-get", "exact", "segments", "longer", "prefix", "all"]
    assert ids(ask(ALL, "/API/videos")) == ["all"]


@pytest.mark.parametrize(
    ("method", "first"),
    [("PUT", "exact-put"), ("POST", "exact-put"), ("put", "exact"), ("PROPFIND", "exact")],
)
def test_a_method_is_compared_as_it_is(method: str, first: str) -> None:
    """Methods have case."""
    assert ids(ask(ALL, "/api/videos", method))[0] == first


@pytest.mark.parametrize("target", ["*", "host:443", "/\ud800"])
def test_what_cannot_be_parsed_meets_the_catch_all_alone(target: str) -> None:
    """It is counted like everything else."""
    assert ids(ask(ALL, target, "OPTIONS")) == ["all"]
    assert verdict(ask(ALL[1:], target)) == (True, Reason.NO_POLICY, None)


def test_decoded_slashes_meet_the_rules_of_the_decoded_path() -> None:
    """Only where `paths.decode_slashes` says so."""
    assert ids(ask(ALL, "/api%2Fvideos")) == ["all"]
    assert "exact" in ids(ask(ALL, "/api%2Fvideos", policy=Policy(decode_slashes=True)))


FINAL: list[tuple[list[Rule], list[str]]] = [
    ([rule("general"), rule("special", "/a", final=True)], ["special"]),
    ([rule("general", final=True), rule("special", "/a")], ["special", "general"]),
    ([rule("one", "/a", final=True), rule("two", "/a"), rule("all")], ["two", "one"]),
    ([rule("get", "/a", method="GET", final=True), rule("any", "/a"), rule("all")], ["get"]),
    ([rule("any", "/a", final=True), rule("get", "/a", method="GET"), rule("all")], ["get", "any"]),
    ([rule("top", "/a", final=True), rule("mid", "/a*", final=True), rule("all")], ["top"]),
    ([rule("other", "/b", final=True), rule("all")], ["all"]),
    # a shadow rule is watched only: it leaves out other shadow rules, and is left out by any
    ([shadow("trial", "/a", final=True), rule("all")], ["trial", "all"]),
    ([shadow("trial", "/a", final=True), shadow("wide", "/a*"), rule("all")], ["trial", "all"]),
    ([rule("real", "/a", final=True), shadow("wide", "/a*")], ["real"]),
    ([shadow("trial", "/a", final=True), rule("mid", "/a*", final=True), rule("all")], ["trial", "mid"]),
]


@pytest.mark.parametrize(("rules", "left"), FINAL)
def test_a_final_rule_leaves_out_every_strictly_less_specific_one(rules: list[Rule], left: list[str]) -> None:
    """So that a looser limit for one route can replace the general one."""
    assert ids(ask(rules, "/a")) == left
    assert ids(ask(rules[::-1], "/a")) == left


MODES: list[tuple[list[Rule], tuple[bool, Reason, str | None]]] = [
    ([exempt("free", "/*"), rule("all")], (True, Reason.EXEMPT, "free")),
    ([block("shut", "/*"), rule("all", "/a")], (False, Reason.BLOCKED, "shut")),
    ([exempt("free", "/*"), block("shut", "/a")], (True, Reason.EXEMPT, "free")),
    ([exempt("free", "/*"), block("shut", "/a", final=True)], (False, Reason.BLOCKED, "shut")),
    ([exempt("free", "/a", final=True), block("shut", "/*")], (True, Reason.EXEMPT, "free")),
    ([rule("other", "/b")], (True, Reason.NO_POLICY, None)),
    ([rule("post", "/a", method="POST")], (True, Reason.NO_POLICY, None)),
    ([], (True, Reason.NO_POLICY, None)),
]


@pytest.mark.parametrize(("rules", "expected"), MODES)
def test_an_exempt_rule_counts_before_a_blocking_one(
    rules: list[Rule], expected: tuple[bool, Reason, str | None]
) -> None:
    """Among those that a final rule has left; nothing is counted either way."""
    assert verdict(ask(rules, "/a")) == expected


@pytest.mark.parametrize(
    ("address", "is_exempt"),
    [("10.1.2.3", True), ("192.0.2.7", True), ("2001:db8::9", True), ("192.0.2.8", False), (None, False)],
)
def test_exempt_addresses_are_never_limited(address: str | None, is_exempt: bool) -> None:
    """Not even blocked."""
    networks = ("10.0.0.0/8", "192.0.2.7", "2001:db8::/32")
    client = Client(id="c", exempt_ips=networks, rules=(block("shut", "/*"),))
    caller = ip_address(address) if address else None
    answer = RuleSet([client]).checks_for(
        RequestMetadata(method="GET", target="/", client_id="c", address=caller)
    )
    assert verdict(answer) == ((True, Reason.EXEMPT, None) if is_exempt else (False, Reason.BLOCKED, "shut"))


STRENGTHS = [
    (Enforcement.ON, Enforcement.ON, "on"),
    (Enforcement.ON, Enforcement.SHADOW, "shadow"),
    (Enforcement.SHADOW, Enforcement.ON, "shadow"),
    (Enforcement.OFF, Enforcement.ON, "off"),
    (Enforcement.ON, Enforcement.OFF, "off"),
    (Enforcement.SHADOW, Enforcement.OFF, "off"),
]


@pytest.mark.parametrize("before", [None, *Enforcement])
@pytest.mark.parametrize(("of_client", "of_all", "effect"), STRENGTHS)
def test_the_weaker_enforcement_holds(
    of_client: Enforcement, of_all: Enforcement, effect: str, before: Enforcement | None
) -> None:
    """Off: nothing is looked at. Shadow: everything is counted, nothing refuses. Whatever it was before."""
    rules = (rule("r"), shadow("s"), block("b", "/shut"))
    client = Client(id="c", enforcement=of_client, rules=rules)
    former = RuleSet([client], Policy(enforcement=before)) if before else None
    asked = RuleSet([client], Policy(enforcement=of_all), before=former)
    answer, shut = (
        asked.checks_for(RequestMetadata(method="GET", target=target, client_id="c"))
        for target in ("/", "/shut")
    )
    if effect == "off":
        assert verdict(answer) == verdict(shut) == (True, Reason.ENFORCEMENT_OFF, None)
        return
    assert isinstance(answer, list)
    assert {check.rule.id: check.shadow for check in answer} == {"r": effect == "shadow", "s": True}
    assert isinstance(shut, list) == (effect == "shadow")


def test_to_switch_off_and_on_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients there are, it is at once; what else the policy says is looked at."""
    clients = [Client(id=name, rules=(rule("r"),)) for name in "abc"]
    on = RuleSet(clients, Policy(default_client="a"))
    compiled: list[str] = []
    real = ClientRules.__init__

    def noted(self: ClientRules, client: Client, *rest: Any) -> None:
        compiled.append(client.id)
        real(self, client, *rest)

    monkeypatch.setattr(ClientRules, "__init__", noted)
    off = RuleSet(clients, Policy(enforcement=Enforcement.OFF), before=on)
    RuleSet(clients, Policy(default_client="b"), before=off)
    assert compiled == []
    RuleSet(clients, Policy(on_missing=OnMissing.DENY), before=off)
    assert compiled == ["a", "b", "c"]


def test_a_blocking_rule_in_shadow_is_a_check_that_never_fits() -> None:
    """Beside the others, so that it is reported as a refusal and refuses nothing."""
    policy = Policy(enforcement=Enforcement.SHADOW)
    answer = ask([block("b", "/*"), rule("r", "/a*")], "/a", policy=policy)
    assert ids(answer) == ["r", "b"]
    assert isinstance(answer, list)
    assert answer[1].shadow
    assert answer[1].cost > answer[1].capacity
    assert ids(ask([block("b", "/*")], policy=policy)) == ["b"]


def test_no_more_than_64_rules_are_counted() -> None:
    """Of more, the enforcing ones come first, and of these the most specific."""
    depth = MAX_CHECKS + 6
    watched = [shadow(f"s{n:02}", "/" + "a" * n + "*") for n in range(60, depth)]
    rules = [*watched, *(rule(f"r{n:02}", "/" + "a" * n + "*") for n in range(1, depth))]
    counted = ids(ask(rules, "/" + "a" * depth))
    assert counted == [f"r{n:02}" for n in range(depth - 1, depth - 1 - MAX_CHECKS, -1)]
    fewer = ids(ask([*watched, *rules[len(watched) : len(watched) + 60]], "/" + "a" * depth))
    assert (len(fewer), fewer[59], fewer[60:]) == (MAX_CHECKS, "r01", ["s69", "s68", "s67", "s66"])


LITERALS = st.sampled_from(["a", "ab", "b"])
SEGMENT = LITERALS | st.sampled_from(["{x}", "{y}", "{z}"])
ROUTES = st.one_of(
    st.lists(LITERALS, max_size=4).map(lambda s: "/" + "/".join(s)),
    st.lists(SEGMENT, min_size=1, max_size=4, unique_by=lambda s: s if "{" in s else object()).map(
        lambda s: "/" + "/".join(s)
    ),
    st.lists(LITERALS, max_size=3).map(lambda s: "/".join(["", *s, "*"])),
    st.lists(LITERALS, min_size=1, max_size=4).map(lambda s: "/" + "/".join(s) + "*"),
)
PATHS = st.lists(st.sampled_from(["a", "ab", "abc", "b", "c"]), max_size=6).map(lambda s: "/" + "/".join(s))


@given(st.lists(ROUTES, max_size=20), st.lists(PATHS | st.just("*"), min_size=1, max_size=10))
@settings(deadline=None, max_examples=400)
def test_the_index_finds_what_matching_one_by_one_does(routes: list[str], paths: list[str]) -> None:
    """Looking paths up in a tree is only a faster way to the same rules."""
    rules = [rule(str(number), route) for number, route in enumerate(routes)]
    for path in paths:
        answer = ask(rules, path)
        matching = {r.id for r in rules if RoutePattern.parse(r.route).matches(canonical_path(path))}
        assert (set(ids(answer)) if isinstance(answer, list) else set()) == matching


def test_what_is_remembered_of_paths_is_bounded() -> None:
    """However many a caller makes up, and however long; each is decided as if it were the first."""
    rules = RuleSet([Client(id="c", rules=(rule("r"), rule("x", route="/x/*")))])

    def asked(method: str, target: str) -> list[str] | None:
        return ids(rules.checks_for(RequestMetadata(method=method, target=target, client_id="c")))

    assert asked("GET", "/x/" + "long" * 100) == asked("LONG" * 100, "/x/a") == ["x", "r"]
    assert rules._met.cache_info().currsize == 0
    for number in range(5000):
        assert asked("GET", f"/x/{number}?{number}") == ["x", "r"]
        assert asked("GET", f"/{number}") == ["r"]
    assert rules._met.cache_info().currsize <= 4096
    assert asked("GET", "/x/4999?other") == ["x", "r"]
