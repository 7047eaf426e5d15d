"""Keys that say who may ask, whose address it is, and what answers look like."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from sidecar.infrastructure.config.loading import Configuration, load
from sidecar.infrastructure.config.masking import masked
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.schema import json_schema

SECRET, NEXT = "SUPERSECRET-of-the-proxy", "SUPERSECRET-that-follows"


def read(folder: Path, text: str, **environ: str) -> Configuration:
    file = folder / "sidecar.yaml"
    file.write_text(text)
    return load(file, environ)


def problems(folder: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text, **environ)
    assert "SUPERSECRET" not in str(caught.value)
    return [f"{problem.where}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("{}", ()),
        ("listen: {secret: null}", ()),
        ("listen: {secret: }", ()),
        (f"listen: {{secret: {SECRET}}}", (SECRET,)),
        (f"listen: {{secret: [{SECRET}, {NEXT}]}}", (SECRET, NEXT)),
        ("listen:\n  secret: ${A}", (SECRET,)),
        ('listen: {secret: ["${A}", "${B}"]}', (SECRET, NEXT)),
        ("listen:\n  secret: ${NONE:-null}", ()),
    ],
)
def test_a_secret_is_one_or_several_or_none(tmp_path: Path, text: str, secrets: tuple[str, ...]) -> None:
    """Two while one is replaced."""
    assert read(tmp_path, text, A=SECRET, B=NEXT).settings.listen.secrets == secrets


UNFIT = "expected at least 16 printable ASCII characters, as a header carries them"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('""', f"listen.secret: {UNFIT}"),
        ("SUPERSECRET", f"listen.secret: {UNFIT}"),
        ("SUPERSECRET-of-the-próxy", f"listen.secret: {UNFIT}"),
        ('" SUPERSECRET-of-the-proxy"', f"listen.secret: {UNFIT}"),
        ('"SUPERSECRET\\nof-the-proxy"', f"listen.secret: {UNFIT}"),
        ("SUPERSECRET" * 100, "listen.secret: expected at most 1024 characters"),
        ("[]", "listen.secret: expected at least 1 entries"),
        (f"[{SECRET}, SUPERSECRET]", f"listen.secret.1: {UNFIT}"),
        (f"[[{SECRET}]]", "listen.secret.0: expected a string"),
        (f"{{{SECRET}: 1}}", "listen.secret: expected a string or a list"),
        ("1234567890123456", "listen.secret: expected a string or a list"),
        ('"${EMPTY}"', f"listen.secret: {UNFIT} (in ${{EMPTY}})"),
        ('["${EMPTY:-}"]', f"listen.secret.0: {UNFIT} (in ${{EMPTY}})"),
    ],
)
def test_any_other_secret_is_an_error_that_does_not_repeat_it(
    tmp_path: Path, written: str, problem: str
) -> None:
    """Neither too easy to guess, nor what no header can carry."""
    assert problems(tmp_path, f"listen: {{secret: {written}}}", EMPTY="") == [problem]


@pytest.mark.parametrize("written", ["${EMPTY}", "${EMPTY:-}", "${NONE:-}", "${file:empty}"])
def test_a_secret_that_turns_out_empty_does_not_open_the_port(tmp_path: Path, written: str) -> None:
    """A plain value that is empty is null to YAML, which would ask nobody for a secret."""
    (tmp_path / "empty").write_text("\n")
    [problem] = problems(tmp_path, f"listen:\n  secret: {written}", EMPTY="")
    assert problem.startswith("listen.secret: is empty; without the key nobody is asked for a secret (in ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listen: {apis: []}", "listen.apis: expected at least one of 'proxy', 'evaluate' and 'rate'"),
        ("listen: {apis: [rate, proxy, rate]}", "listen.apis: 'rate' stands more than once"),
        ("listen: {apis: [prox]}", "listen.apis.0: expected 'proxy', 'evaluate' or 'rate', got 'prox'"),
        ("listen: {apis: proxy}", "listen.apis: expected a list, got 'proxy'"),
        ("listen: {trusted_peers: loopback}", "listen.trusted_peers: expected a list, got 'loopback'"),
        (
            "listen: {trusted_peers: [loopback, 10.0.0.1/8]}",
            "listen.trusted_peers.1: expected 'loopback', 'private', or a network: "
            "expected an address or a CIDR network: 10.0.0.1/8 has host bits set",
        ),
        (
            "listen: {secret_header: X-User-Id}",
            "listen.secret_header: 'x-user-id' is read for something else",
        ),
        ("listen: {secret_header: Cookie}", "listen.secret_header: 'cookie' is read for something else"),
        (
            "{listen: {secret_header: x-s}, client_ip: {dialects: {nginx: {header: X-S}}}}",
            "listen.secret_header: 'x-s' is read for something else",
        ),
        (
            "client_ip: {dialects: {ngin: {header: x-real-ip}}}",
            "client_ip.dialects.ngin: "
            "expected 'envoy', 'nginx', 'ingress-nginx' or 'forward-auth', got 'ngin'",
        ),
        (
            "client_ip: {dialects: {nginx: {heade: x-real-ip}}}",
            "client_ip.dialects.nginx.heade: unknown key; did you mean header?",
        ),
        (
            "client_ip: {header: null, trusted_networks: [10.0.0.0/33]}",
            "client_ip.trusted_networks.0: expected an address or a CIDR network: "
            "'10.0.0.0/33' does not appear to be an IPv4 or IPv6 network",
        ),
        ("response: {reset: later}", "response.reset: expected 'delta' or 'epoch', got 'later'"),
        ("response: {ietf_headers: 1}", "response.ietf_headers: expected true or false, got 1"),
        ("count_preflights: no", "count_preflights: expected true or false, got 'no'"),
    ],
)
def test_each_mistake_is_named_once(tmp_path: Path, text: str, problem: str) -> None:
    """With its place and what was expected."""
    assert problems(tmp_path, text) == [problem]


@pytest.mark.parametrize(
    "name",
    ["Host", "Cookie", *(f"X-Original-{what}" for what in ("URI", "URL", "Method"))]
    + [f"x-forwarded-{what}" for what in ("uri", "method", "host")],
)
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("client_ip: {header: %s}", "client_ip.header"),
        ("client_ip: {dialects: {nginx: {header: %s}}}", "client_ip.dialects.nginx.header"),
    ],
)
def test_an_address_is_in_no_header_that_says_something_else(
    tmp_path: Path, text: str, where: str, name: str
) -> None:
    """No address could ever be read there."""
    assert problems(tmp_path, text % name) == [f"{where}: {name.lower()!r} is read for something else"]


RULE = "{route: /*, identifier_type: none, limit: 1, window_seconds: 1, response: %s}"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("{status: 401}", ["status: expected no 401, which asks callers to say who they are"]),
        ("{status: 500}", ["status: expected at most 499, got 500"]),
        ('{status: "429"}', ["status: expected an integer, got '429'"]),
        ("{body: 5}", ["body: expected a string, got 5"]),
        ("{content_type: text/html}", ["content_type: has no meaning without a body"]),
        (
            '{body: "", content_type: "a/b\\r\\nx: y"}',
            ["content_type: expected type/subtype, got 'a/b\\r\\nx: y'"],
        ),
        ("{stauts: 429}", ["stauts: unknown key; did you mean status?"]),
        (
            "{status: 407, body: x, content_type: none}",
            [
                "status: expected no 407, which asks callers to say who they are",
                "content_type: expected type/subtype, got 'none'",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_rules_response_is_named(
    tmp_path: Path, response: str, expected: list[str]
) -> None:
    """Deep in the file, beside what is wrong elsewhere."""
    first = RULE.replace("/*", "/") % "{status: 418, body: Éteint, content_type: text/plain}"
    text = f"clients: [{{id: c, rules: [{first}, {RULE % response}]}}]"
    assert problems(tmp_path, text) == [f"clients.0.rules.1.response.{each}" for each in expected]


def test_what_is_shown_of_the_settings_has_no_secret_and_is_json(tmp_path: Path) -> None:
    """One secret or several; what dialects have of their own, too."""
    for written in (SECRET, f"[{SECRET}, {NEXT}]"):
        text = f"{{listen: {{secret: {written}}}, client_ip: {{dialects: {{nginx: {{header: x-real-ip}}}}}}}}"
        shown = masked(read(tmp_path, text).settings)
        assert shown["listen"]["secret"] == "***"
        assert shown["client_ip"]["dialects"]["nginx"]["header"] == "x-real-ip"
        assert "SUPERSECRET" not in json.dumps(shown)
    settings = read(tmp_path, text).settings
    assert "SUPERSECRET" not in repr(settings)
    assert masked(read(tmp_path, "{}").settings)["listen"]["secret"] is None


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (f"listen: {{secret: {SECRET}}}", True),
        (f"listen: {{secret: [{SECRET}]}}", True),
        ("listen: {secret: null}", True),
        ("listen: {secret: short}", False),
        ("listen: {secret: []}", False),
        ("client_ip: {dialects: {ingress-nginx: {header: x-real-ip}}}", True),
        ("client_ip: {dialects: {ingress: {header: x-real-ip}}}", False),
        ("listen: {apis: [evaluate]}", True),
        ("listen: {apis: [admin]}", False),
        ("response: {reset: epoch, ietf_headers: true, legacy_headers: false}", True),
        (f"clients: [{{id: c, rules: [{RULE % '{status: 418, body: x}'}]}}]", True),
        (f"clients: [{{id: c, rules: [{RULE % '{status: 600}'}]}}]", False),
        (f"clients: [{{id: c, rules: [{RULE % '{unknown: 1}'}]}}]", False),
    ],
)
def test_editors_know_the_keys(text: str, valid: bool) -> None:
    """The JSON Schema takes what is taken."""
    document: Any = yaml.safe_load(text)
    assert jsonschema_rs.is_valid(json_schema(), document) is valid


def test_a_rule_that_counts_by_the_proxys_secret_is_warned_of(tmp_path: Path) -> None:
    """It is taken out before rules are looked at."""
    counted = "{route: /*, identifier_type: 'header:X-Sidecar-Secret', limit: 1, window_seconds: 1}"
    clients = f"clients: [{{id: c, rules: [{counted}]}}]"
    warned = read(tmp_path, f"{{listen: {{secret: {SECRET}}}, {clients}}}").warnings
    said = "a proxied request never has the header x-sidecar-secret: it has the proxy's secret"
    assert said in [warning.message for warning in warned]
    assert said not in [warning.message for warning in read(tmp_path, f"{{{clients}}}").warnings]
