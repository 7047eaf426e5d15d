"""What a wrong configuration answers: every problem with file, line, key and what was expected."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sidecar.infrastructure.config import ConfigurationError, load, yaml_source

RULE = "identifier_type: ip, limit: 5, window_seconds: 60"


def problems(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    path = folder / "sidecar.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load(path, environ or {})
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def rule(fields: str) -> str:
    return f"clients:\n- id: a\n  rules:\n  - {{{fields}}}"


STORES = (
    "embedded:, embedded:/absolute/directory, redis://…, rediss://…, unix://…, redis+cluster://…,"
    " rediss+cluster://…, redis+sentinel://… or rediss+sentinel://…"
)
TYPES = "none, session_id, ip_user_agent, ip, user_id, header:NAME, cookie:NAME, path:NAME, jwt_claim:NAME"
ONE_PROBLEM = [
    ("", ": expected a mapping at the top level, got nothing"),
    ("- a", ":1: expected a mapping at the top level, got a list"),
    ("store: [", ":1: cannot be read as YAML: while parsing a flow node, did not find expected node content"),
    ("a: *b", ":1: cannot be read as YAML: found undefined alias"),
    ("workers: 1\nstor: {}", ":2: stor: unknown key; did you mean store?"),
    ("zzz: 1", ":1: zzz: unknown key"),
    (
        rule(f"route: /, bogus: 1, {RULE}"),
        ":4: clients.0.rules.0.bogus: unknown key",
    ),
    ("store:\n  url: http://h", f":2: store.url: expected {STORES}"),
    ("store:\n  url: embedded", f":2: store.url: expected {STORES}"),
    ("store:\n  url: embedded:relative", f":2: store.url: expected {STORES}"),
    ("store: {timeout_ms: 0}", ":1: store.timeout_ms: expected at least 1, got 0"),
    ("store: {timeout_ms: 60001}", ":1: store.timeout_ms: expected at most 60000, got 60001"),
    (
        "store: {on_unavailable: maybe}",
        ":1: store.on_unavailable: expected 'allow', 'deny' or 'local', got 'maybe'",
    ),
    (
        "store: {key_prefix: 'a b'}",
        ":1: store.key_prefix: expected text that matches ^[A-Za-z0-9._-]{1,32}$, got 'a b'",
    ),
    ("store:", ":1: store: expected an object"),
    ("workers: 0", ":1: workers: expected at least 1, got 0"),
    (
        "listen: {authz: ':8000'}",
        ":1: listen.authz: expected host:port, [::1]:port or unix:/path, got ':8000'",
    ),
    (
        "listen: {authz: 'h:65536'}",
        ":1: listen.authz: expected host:port, [::1]:port or unix:/path, got 'h:65536'",
    ),
    (
        "listen: {authz: 'h:1', admin: 'h:1'}",
        ":1: listen: authz and admin need two addresses, got 'h:1' for both",
    ),
    (
        "response: {unavailable_status: 429}",
        ":1: response.unavailable_status: expected another status than 429, "
        "which says that a limit is used up",
    ),
    (
        "client_ip:\n  trusted_hops: 1\n  ipv6_prefix: 8",
        ":3: client_ip.ipv6_prefix: expected at least 16, got 8",
    ),
    ("clients_from: 3", ":1: clients_from: expected a string or a list, got 3"),
    ("clients_from: [a*, 3]", ":1: clients_from.1: expected a string, got 3"),
    ("clients: 3", ":1: clients: expected a list, got 3"),
    ("clients: [3]", ":1: clients.0: expected an object, got 3"),
    ("clients:\n- name: x", ":2: clients.0.id: is required"),
    ("workers: 1\nworkers: 1", ":2: workers: the key stands twice; the first is in line 1"),
    ("[a]: 1", ":1: ?: expected a key that is text"),
    ("workers: !int 1", ":1: workers: the tag !int has no meaning here"),
    ("store: &a {url: *a}", ":1: store.url: an alias refers to what it stands in"),
    ("store: &a {<<: *a}", ":1: store: an alias refers to what it stands in"),
    ("store:\n  <<: 3", ":2: store.<<: expected a mapping, or a list of mappings, to merge"),
    (
        rule("route: /, identifier_type: ip, window_seconds: 1, limit: true"),
        ":4: clients.0.rules.0.limit: expected an integer, got true",
    ),
    (
        rule("route: /, identifier_type: ip, window_seconds: 1, limit: '100'"),
        ":4: clients.0.rules.0.limit: expected an integer, got '100'",
    ),
    (
        rule("route: /, identifier_type: ip, window_seconds: 1, limit: 1.5"),
        ":4: clients.0.rules.0.limit: expected an integer, got 1.5",
    ),
    (
        rule("route: /, identifier_type: ip, window_seconds: 1, limit: 1:30"),
        ":4: clients.0.rules.0.limit: expected an integer, got '1:30'",
    ),
    (
        rule("route: /, identifier_type: ip, window_seconds: 1, lmit: 1, limit: 1"),
        ":4: clients.0.rules.0.lmit: unknown key; did you mean limit?",
    ),
    (
        rule(f"route: /, method: 3, {RULE}"),
        ":4: clients.0.rules.0.method: expected a string or a list, got 3",
    ),
    (
        rule(f"route: /, method: [GET, 3], {RULE}"),
        ":4: clients.0.rules.0.method.1: expected a string, got 3",
    ),
    (
        rule("route: /, identifier_type: me, limit: 5, window_seconds: 1"),
        f":4: clients.0.rules.0.identifier_type: expected {TYPES}, got 'me'",
    ),
    (
        rule("route: /, mode: exmpt"),
        ":4: clients.0.rules.0.mode: expected 'enforce', 'shadow', 'exempt' or 'block', got 'exmpt'",
    ),
    (
        "clients:\n- id: a\n  rules:\n  - route: /\n    identifier_type: user_id\n    limit: 5\n"
        "    window_seconds: 60\n    overrides:\n      a.b: often",
        ":9: clients.0.rules.0.overrides.a.b: expected a limit, 'block' or 'unlimited', got 'often'",
    ),
    (
        rule("route: /, identifier_type: user_id, limit: 5, window_seconds: 60, overrides: {7: 1.5}"),
        ":4: clients.0.rules.0.overrides.7: expected an integer or a string, got 1.5",
    ),
    (
        "clients:\n- id: a\n  hosts:\n  - ok.example\n  - bad:1",
        ":5: clients.0.hosts.1: expected a host name or *.name, without port, got 'bad:1'",
    ),
    (
        "clients:\n- {id: a, hosts: [h.io]}\n- {id: b, hosts: [H.io]}",
        ":3: clients.1.hosts.0: the host 'h.io' is claimed by the clients 'a' (sidecar.yaml:2) and 'b'",
    ),
    (
        "clients:\n- id: a\n- id: a",
        ":3: clients.1.id: the client 'a' stands in sidecar.yaml:2 already",
    ),
    (
        "admin:\n  keys:\n  - {name: a, key: short}",
        ":3: admin.keys.0.key: expected at least 8 characters, or none for an entry that is left out",
    ),
    (
        "admin: {keys: [{name: a, key: ''}, {name: a, key: ''}]}",
        ":1: admin.keys: expected another name for each key",
    ),
]


@pytest.mark.parametrize(("text", "problem"), ONE_PROBLEM)
def test_each_mistake_is_named_once_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    """One mistake gives one message: place, key, what was expected and what was found."""
    assert problems(tmp_path, text) == [f"sidecar.yaml{problem}"]


def test_all_problems_are_told_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    """A wrong rule hides neither another one, nor its own other fields, nor those of its client."""
    text = (
        "stor: {}\nworkers: 0\nclients:\n- id: a\n  hosts: ['x:1']\n  rules:\n"
        "  - route: zz\n    limit: '5'\n    window_seconds: 60\n    identifier_type: ip\n"
        "  - route: /ok\n    limt: 3\n    limit: 3\n    window_seconds: 0\n    identifier_type: ip\n"
        "- id: a\n"
    )
    assert [problem.split(": ")[0:2] for problem in problems(tmp_path, text)] == [
        ["sidecar.yaml:1", "stor"],
        ["sidecar.yaml:2", "workers"],
        ["sidecar.yaml:5", "clients.0.hosts.0"],
        ["sidecar.yaml:7", "clients.0.rules.0.route"],
        ["sidecar.yaml:8", "clients.0.rules.0.limit"],
        ["sidecar.yaml:12", "clients.0.rules.1.limt"],
        ["sidecar.yaml:14", "clients.0.rules.1.window_seconds"],
        ["sidecar.yaml:16", "clients.1.id"],
    ]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (
            [f"id: r, route: /a, {RULE}", f"id: r, route: /b, {RULE}", f"id: x, route: zz, {RULE}"],
            ["rules: the rule id 'r' stands 2 times", "rules.2.route: "],
        ),
        (
            [f"id: r, route: /a, {RULE}", f"id: r, route: zz, {RULE}"],
            ["rules: the rule id 'r' stands 2 times", "rules.1.route: "],
        ),
        (
            [f"route: /a, {RULE}", f"route: /a, {RULE}", "route: 7, mode: block"],
            ["rules: 2 rules for /a count the same", "rules.2.route: "],
        ),
        (
            ["route: /a, identifier_type: ip, limit: 0, window_seconds: 60", f"route: /a, {RULE}"],
            ["rules: 2 rules for /a count the same", "rules.0.limit: "],
        ),
        (["route: /a, mode: block, limit: 5", f"route: /a, {RULE}"], ["rules.0.limit: "]),
    ],
)
def test_rules_that_stand_twice_are_told_beside_a_wrong_one(
    tmp_path: Path, rules: list[str], told: list[str]
) -> None:
    """Whether it is another rule that is wrong, or one of the two."""
    text = "\n".join(["clients:", "- id: a", "  rules:", *(f"  - {{{rule}}}" for rule in rules)])
    found = [problem.partition(": clients.0.")[2] for problem in problems(tmp_path, text)]
    assert [one[: len(start)] for one, start in zip(found, told, strict=True)] == told


def test_a_client_without_a_right_id_still_tells_the_rest(tmp_path: Path) -> None:
    """As a rule without a right route does."""
    text = (
        "clients:\n- id: 7\n  hosts: [a..b]\n  rules:\n"
        f"  - {{route: /a, {RULE}}}\n  - {{route: /a, {RULE}}}\n"
        "  - {id: a b, route: 7, method: get, identifier_type: 'path:x', limit: 5, window_seconds: 60}\n"
    )
    assert [problem.split(": ")[1] for problem in problems(tmp_path, text)] == [
        "clients.0.id",
        "clients.0.hosts.0",
        "clients.0.rules",
        "clients.0.rules.2.route",
        "clients.0.rules.2.id",
        "clients.0.rules.2.method",
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """No file, no line."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "none.yaml", {})
    assert str(caught.value) == f"{tmp_path}/none.yaml: cannot be read: no such file or directory"


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    """A mount that went wrong often leaves a directory where the file should be."""
    with pytest.raises(ConfigurationError, match="cannot be read: is a directory"):
        load(tmp_path, {})


@pytest.mark.parametrize("text", ["", "clients_from: pipe", "app_env: '${file:pipe}'"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, text: str) -> None:
    """Opening a FIFO would wait for ever, and with it the reload and the end of the process."""
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe"
    if text:
        path = tmp_path / "sidecar.yaml"
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"pipe.* cannot be read: no regular file"):
        load(path, {})


@pytest.mark.parametrize("name", ["loop", "loop/*"])
def test_a_link_that_leads_to_itself_cannot_be_read(tmp_path: Path, name: str) -> None:
    """Nor can what is in a folder that is one, which is not the same as an empty folder."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "sidecar.yaml").write_text(f"clients_from: {name}\n")
    with pytest.raises(ConfigurationError, match=r"loop:? cannot be read: too many levels of symbolic links"):
        load(tmp_path / "sidecar.yaml", {})


@pytest.mark.parametrize("name", [r"a\0b", r"a\0/*", r"*\0"])
def test_no_path_has_a_nul_in_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "sidecar.yaml").write_text(f'clients_from: [b, "{name}"]\n')
    with pytest.raises(ConfigurationError, match=r"sidecar.yaml:1: clients_from: expected the paths"):
        load(tmp_path / "sidecar.yaml", {})


def test_a_device_is_no_configuration() -> None:
    """One such as this never ends."""
    with pytest.raises(ConfigurationError, match="/dev/zero: cannot be read: no regular file"):
        load(Path("/dev/zero"), {})


def test_text_that_is_no_utf8_names_the_byte(tmp_path: Path) -> None:
    """Bytes count from 1."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"app_env: caf\xe9\n")
    with pytest.raises(ConfigurationError, match="is not UTF-8: byte 13 cannot be read"):
        load(path, {})


def test_aliases_that_grow_without_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lines can stand for billions of values."""
    monkeypatch.setattr(yaml_source, "MAX_NODES", 10_000)
    levels = [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 9)]
    text = "\n".join(["x0: &x0 [a]", *levels])
    assert any("has more than 10000 values once its aliases" in one for one in problems(tmp_path, text))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """Nothing in this file is deep, so depth is a mistake or an attack."""
    assert any(
        "is nested more than 100 deep" in one for one in problems(tmp_path, "a: " + "[" * 200 + "]" * 200)
    )


def test_more_rules_than_one_call_carries_are_refused(tmp_path: Path) -> None:
    """65 rules for one request are too many; the message has such a request."""
    rules = [f"  - {{id: r{n}, route: /a/*, {RULE}}}" for n in range(64)]
    text = "\n".join(
        ["clients:", "- id: a", "  rules:", *rules, f"  - {{route: '/a/{{x}}', method: PUT, {RULE}}}"]
    )
    assert problems(tmp_path, text) == [
        "sidecar.yaml:3: clients.0.rules: 65 rules apply to PUT /a/x; expected at most 64 for one request"
    ]
