"""What can be loaded and is yet hardly what was meant."""

from pathlib import Path

import pytest

from sidecar.infrastructure.config import load

COUNTS = "identifier_type: ip, limit: 5, window_seconds: 60"
ALL = f"{{id: all, route: /*, {COUNTS}}}"


def warnings(folder: Path, text: str) -> list[str]:
    path = folder / "sidecar.yaml"
    path.write_text(text, encoding="utf-8")
    return [str(warning).replace(f"{folder}/", "") for warning in load(path, {}).warnings]


def of_rules(folder: Path, *rules: str, client: str = "") -> list[str]:
    lines = [f"  - {rule}" for rule in (ALL, *rules)]
    found = warnings(folder, "\n".join(["clients:", "- id: a", f"  {client}", "  rules:", *lines]))
    return [warning.partition(": clients.0.")[2] for warning in found]


def test_a_client_without_a_rule_for_the_rest_is_warned_of(tmp_path: Path) -> None:
    """What no rule matches is not limited."""
    text = f"clients:\n- id: a\n  rules:\n  - {{route: /*, method: GET, {COUNTS}}}"
    assert warnings(tmp_path, text) == [
        "sidecar.yaml:2: clients.0: no rule is for all the rest (route '/*', method '*'): "
        "what matches no rule is not limited"
    ]


def test_hosts_without_a_default_client_are_warned_of(tmp_path: Path) -> None:
    """A caller that names another host would not be limited."""
    text = f"clients:\n- id: a\n  hosts: [h.io]\n  rules: [{ALL}]"
    assert warnings(tmp_path, text) == [
        "sidecar.yaml:3: clients.0.hosts: without a default_client, requests for other hosts are not limited"
    ]
    assert warnings(tmp_path, f"default_client: a\n{text}") == []


@pytest.mark.parametrize(("name", "alike"), [("b", ""), ("shp", "; did you mean shop?")])
def test_a_default_client_of_no_file_is_warned_of(tmp_path: Path, name: str, alike: str) -> None:
    """The API may have made it; were it an error, no reload would succeed any more."""
    text = f"default_client: {name}\nclients:\n- id: shop\n  rules: [{ALL}]"
    assert warnings(tmp_path, text) == [
        f"sidecar.yaml:1: default_client: no file defines '{name}': until the API makes it, "
        f"the requests that it is for are not limited{alike}"
    ]


def test_a_default_client_from_outside_is_not_repeated(tmp_path: Path) -> None:
    """Whatever word it is, nor what is like it."""
    path = tmp_path / "sidecar.yaml"
    path.write_text(f"default_client: ${{D}}\nclients:\n- id: apis\n  rules: [{ALL}]\n- id: ${{C}}\n")
    told = [str(each) for each in load(path, {"D": "api", "C": "other"}).warnings]
    assert f"{path}:1: default_client: no file defines ${{D}}: until the API makes it, " in told[0]
    assert "did you mean" not in told[0]


def test_enforcement_that_is_off_is_warned_of(tmp_path: Path) -> None:
    """Globally, and for a client."""
    text = f"enforcement: off\nclients:\n- id: a\n  enforcement: off\n  rules: [{ALL}]"
    assert warnings(tmp_path, text) == [
        "sidecar.yaml:1: enforcement: is off: no request is limited",
        "sidecar.yaml:4: clients.0.enforcement: is off: no request of this client is limited",
    ]


@pytest.mark.parametrize(
    ("rules", "silent"),
    [
        (
            ("{id: e, route: /a*, mode: exempt}", f"{{route: /a/b, {COUNTS}}}"),
            "the exempt rule 'e' covers it",
        ),
        (("{id: b, route: /a/*, mode: block}", f"{{route: /a/b, {COUNTS}}}"), "the block rule 'b' covers it"),
        (
            ("{id: e, route: /a/*, mode: exempt}", "{route: /a/b, mode: block}"),
            "the exempt rule 'e' covers it",
        ),
        (
            (
                "{id: e, route: /a/*, method: [GET, PUT], mode: exempt}",
                f"{{route: /a/b, method: PUT, {COUNTS}}}",
            ),
            "the exempt rule 'e' covers it",
        ),
    ],
)
def test_a_rule_that_never_applies_is_warned_of(tmp_path: Path, rules: tuple[str, ...], silent: str) -> None:
    """An exempt rule stands above all others, a block rule above those that count."""
    assert of_rules(tmp_path, *rules) == [f"rules.2: never applies: {silent}"]


@pytest.mark.parametrize(
    "rules",
    [
        ("{route: /a/*, mode: exempt}", f"{{route: /a*, {COUNTS}}}"),
        ("{route: /a/*, method: GET, mode: exempt}", f"{{route: /a/b, {COUNTS}}}"),
        ("{route: /a/*, mode: exempt}", f"{{route: /a/b, final: true, {COUNTS}}}"),
        (
            "{route: /a/*, mode: exempt}",
            f"{{id: f, route: '/a/{{x}}', final: true, {COUNTS}}}",
            f"{{id: g, route: /a/b, {COUNTS}}}",
        ),
        ("{route: /a/*, mode: block}", "{route: /a/b, mode: exempt}"),
    ],
)
def test_a_rule_that_may_apply_is_not(tmp_path: Path, rules: tuple[str, ...]) -> None:
    """More routes or methods than are covered, or a final rule that leaves the covering one out."""
    assert of_rules(tmp_path, *rules) == []


def test_a_block_rule_that_is_only_watched_silences_nothing(tmp_path: Path) -> None:
    """Under `enforcement: shadow` nothing is blocked, so what it covers is counted."""
    rules = ("{route: /a/*, mode: block}", f"{{route: /a/b, {COUNTS}}}")
    assert of_rules(tmp_path, *rules, client="enforcement: shadow") == []


def test_a_route_that_decoded_slashes_make_unreachable_is_warned_of(tmp_path: Path) -> None:
    """Every target has real slashes by the time it is matched."""
    text = f"default_client: a\npaths: {{decode_slashes: true}}\nclients:\n- id: a\n  rules:\n  - {ALL}\n"
    assert warnings(tmp_path, f"{text}  - {{route: /a%2fb, {COUNTS}}}") == [
        "sidecar.yaml:7: clients.0.rules.1.route: never matches: decode_slashes turns %2F, %5C and \\ "
        "into '/' before matching"
    ]


def test_overrides_of_one_ipv6_network_are_warned_of(tmp_path: Path) -> None:
    """They name one identifier, so only one of them can hold."""
    two = f'{{route: /a, {COUNTS}, overrides: {{"2001:db8::1": block, "2001:db8::2": unlimited}}}}'
    assert of_rules(tmp_path, two) == [
        "rules.1.overrides.2001:db8::2: is counted together with '2001:db8::1', a network of /64; "
        "the last one holds"
    ]


def test_overrides_of_one_ipv4_address_are_warned_of(tmp_path: Path) -> None:
    """Two spellings of it, and no network."""
    two = f'{{route: /a, {COUNTS}, overrides: {{"10.0.0.1": block, "::ffff:10.0.0.1": 5}}}}'
    assert of_rules(tmp_path, two) == [
        "rules.1.overrides.::ffff:10.0.0.1: is counted together with '10.0.0.1', the same address; "
        "the last one holds"
    ]


@pytest.mark.parametrize(("written", "version"), [("0.0.0.0/0", 4), ("::/0", 6), ("::ffff:0.0.0.0/96", 4)])
def test_exempting_everybody_is_warned_of(tmp_path: Path, written: str, version: int) -> None:
    """It is `enforcement: off` in disguise."""
    assert of_rules(tmp_path, client=f"exempt_ips: [10.0.0.0/8, '{written}']") == [
        f"exempt_ips.1: holds every IPv{version} address: nothing that comes from one is limited"
    ]


NO_SESSION = (
    "a proxied request never has a session_id: identity.session_header and identity.session_cookie are null"
)
NO_USER = "a proxied request never has a user_id: identity.user_header is null"


@pytest.mark.parametrize(
    ("identity", "kind", "warned"),
    [
        ("session_header: null, session_cookie: null", "session_id", [NO_SESSION]),
        ("session_header: null, session_cookie: null", "[ip, session_id]", [NO_SESSION]),
        ("session_header: null, session_cookie: null", "user_id", []),
        ("session_header: null", "session_id", []),
        ("session_cookie: null", "session_id", []),
        ("user_header: null", "user_id", [NO_USER]),
        ("user_header: null", "session_id", []),
    ],
)
def test_an_identifier_that_is_read_from_nowhere_is_warned_of(
    tmp_path: Path, identity: str, kind: str, warned: list[str]
) -> None:
    """Every caller would be counted as one without it."""
    rule = f"{{route: /*, identifier_type: {kind}, limit: 5, window_seconds: 60}}"
    text = f"identity: {{{identity}}}\nclients:\n- id: a\n  rules:\n  - {rule}\n"
    place = "sidecar.yaml:5: clients.0.rules.0.identifier_type: "
    assert warnings(tmp_path, text) == [place + message for message in warned]


ALL_CLIENTS = f"default_client: a\nclients:\n- id: a\n  rules: [{ALL}]\n"


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (
            "listen: {authz: '0.0.0.0:8000', trusted_peers: [10.0.0.0/8, 0.0.0.0/0]}",
            "listen.trusted_peers.1: whoever reaches 0.0.0.0:8000 may use up any caller's limit: "
            "name the proxy's network, or set listen.secret",
        ),
        (
            "listen: {authz: '[2001:db8::1]:8000', trusted_peers: ['::/0']}",
            "listen.trusted_peers.0: whoever reaches [2001:db8::1]:8000 may use up any caller's limit: "
            "name the proxy's network, or set listen.secret",
        ),
        (
            "listen: {trusted_peers: []}",
            "listen.trusted_peers: is empty: nobody may ask, every check is answered 403",
        ),
        (
            "listen: {authz: 'unix:/run/sidecar.sock', trusted_peers: [loopback]}",
            "listen.trusted_peers: is not read where authz is a Unix socket: whoever may open the socket may "
            "ask, so keep its folder to the proxy",
        ),
        (
            "client_ip: {trusted_hops: 2}",
            "client_ip.trusted_hops: is not read: the address is taken from x-client-ip "
            "(header: null reads x-forwarded-for)",
        ),
        (
            "client_ip: {header: null, trusted_hops: 2, trusted_networks: [10.0.0.0/8]}",
            "client_ip.trusted_hops: is not read: trusted_networks stands in its place",
        ),
        (
            "client_ip: {header: null, trusted_networks: [10.0.0.0/8, '::/0']}",
            "client_ip.trusted_networks.1: holds every address: what callers write in front of "
            "x-forwarded-for would be believed",
        ),
        (
            "client_ip: {dialects: {nginx: {header: x-real-ip, trusted_networks: [10.0.0.0/8]}}}",
            "client_ip.dialects.nginx.trusted_networks: is not read: the address is taken from x-real-ip "
            "(header: null reads x-forwarded-for)",
        ),
        (
            "client_ip: {header: X-Forwarded-For}",
            "client_ip.header: x-forwarded-for is a list, not an address alone: write header: null",
        ),
        (
            "identity: {user_header: x_user}",
            "identity.user_header: most proxies drop headers with an underscore, as 'x_user': write '-'",
        ),
        (
            "client_ip: {dialects: {nginx: {header: real_ip}}}",
            "client_ip.dialects.nginx.header: most proxies drop headers with an underscore, as 'real_ip': "
            "write '-'",
        ),
        (
            "response: {legacy_headers: false}",
            "response.legacy_headers: with ietf_headers off too, no caller is told how much is left",
        ),
        (
            "response: {unavailable_status: 502}",
            "response.unavailable_status: behind Traefik a 502 is taken for a sidecar that is gone: "
            "what `deny` refuses passes, or is answered 503 with the closed recipe",
        ),
        (
            "listen: {apis: [rate]}",
            "listen.apis: neither proxy nor evaluate is served: no rule of a client is ever asked about",
        ),
    ],
)
def test_ports_addresses_and_answers_that_are_hardly_meant_are_warned_of(
    tmp_path: Path, text: str, warned: str
) -> None:
    """Each once, at its key."""
    assert warnings(tmp_path, f"{text}\n{ALL_CLIENTS}") == [f"sidecar.yaml:1: {warned}"]


@pytest.mark.parametrize(
    "text",
    [
        "listen: {authz: '0.0.0.0:8000'}",
        "listen: {authz: '127.0.0.1:8000', trusted_peers: [0.0.0.0/0]}",
        "listen: {authz: 'localhost:8000', trusted_peers: [0.0.0.0/0]}",
        "listen: {authz: '0.0.0.0:8000', trusted_peers: [0.0.0.0/0], secret: 0123456789abcdef}",
        "listen: {authz: 'unix:/run/sidecar.sock'}",
        "client_ip: {trusted_hops: 1}",
        "client_ip: {header: null, trusted_hops: 2}",
        "client_ip: {header: null, trusted_networks: [10.0.0.0/8]}",
        "response: {legacy_headers: false, ietf_headers: true}",
        "response: {unavailable_status: 500}",
        "response: {unavailable_status: 504}\nlisten: {apis: [evaluate]}",
        "listen: {apis: [evaluate]}",
    ],
)
def test_ports_addresses_and_answers_that_may_be_meant_are_not(tmp_path: Path, text: str) -> None:
    """Peers of private networks, one place for the address, numbers in one form."""
    assert warnings(tmp_path, f"{text}\n{ALL_CLIENTS}") == []


def test_identifiers_that_callers_of_evaluate_say_themselves_are_warned_of(tmp_path: Path) -> None:
    """Without a proxy, nobody has taken them out or verified them."""
    rules = [
        "{route: /*, identifier_type: ip, limit: 5, window_seconds: 60}",
        "{route: /a, identifier_type: ['jwt_claim:sub', 'header:x-plan'], limit: 5, window_seconds: 60}",
    ]
    text = f"listen: {{apis: [evaluate]}}\nclients:\n- id: a\n  rules: [{', '.join(rules)}]\n"
    assert warnings(tmp_path, text) == [
        "sidecar.yaml:1: listen.apis: without proxy, callers of evaluate say themselves what is counted: "
        "header:x-plan, jwt_claim:sub is read from the headers of their body"
    ]
