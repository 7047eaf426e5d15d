"""What a right configuration becomes: defaults, substitution, YAML's corners, several files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.domain.rule import Enforcement, OnMissing, OnUnavailable
from sidecar.infrastructure.config import Configuration, ConfigurationError, Endpoint, json_schema, load

SAMPLE = Path(__file__).parents[3] / "config" / "sidecar.yaml"
RULE = "{route: /*, identifier_type: ip, limit: 5, window_seconds: 60}"


def loaded(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> Configuration:
    path = folder / "sidecar.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ or {})


def refused(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, text, environ)
    return str(caught.value).replace(f"{folder}/", "")


def test_the_sample_loads_without_environment_and_without_warnings() -> None:
    """What `make run` starts with, and what a person reads first."""
    configuration = load(SAMPLE, {})
    assert configuration.warnings == ()
    assert configuration.settings.store.url == "embedded:"
    assert configuration.settings.admin.keys == ()
    assert configuration.sources == {"mon-service": SAMPLE}
    assert [rule.id for rule in configuration.clients[0].rules] == ["videos-read", "everything"]


def test_the_sample_says_what_the_defaults_are(tmp_path: Path) -> None:
    """A key that is left out behaves as the sample shows it."""
    default = loaded(tmp_path, "workers: 1").settings
    sample = load(SAMPLE, {}).settings
    assert sample.model_copy(update={"clients": (), "default_client": None}) == default


def test_the_environment_gives_what_the_file_leaves_out(tmp_path: Path) -> None:
    """`REDIS_URL`, `LOG_LEVEL` and `APP_ENV` work without being named in the file; empty is not set."""
    environ = {"REDIS_URL": "redis://h", "LOG_LEVEL": "debug", "APP_ENV": ""}
    settings = loaded(tmp_path, "workers: 1", environ).settings
    assert (settings.store.url, settings.log_level, settings.app_env) == ("redis://h", "DEBUG", "development")
    assert loaded(tmp_path, "store: {url: 'embedded:/d'}", environ).settings.store.url == "embedded:/d"


def test_a_wrong_environment_is_named_without_its_value(tmp_path: Path) -> None:
    """It stands in no line."""
    assert refused(tmp_path, "workers: 1", {"LOG_LEVEL": "loud-one"}) == (
        "sidecar.yaml: log_level: expected 'DEBUG', 'INFO', 'WARNING' or 'ERROR', "
        "got the value of ${LOG_LEVEL}"
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${A}", "one"),
        ("'${A}'", "one"),
        ("x${A}y${A}", "xoneyone"),
        ("${NONE:-some}", "some"),
        ("${EMPTY:-some}", "some"),
        ("'${EMPTY}'", ""),
        ("'${NONE:-}'", ""),
        ("$${A}", "${A}"),
        ("${file:secret}", "two words"),
        ("'${N}'", "7"),
        ("!!str ${N}", "7"),
        ("$A", "$A"),
    ],
)
def test_references_are_filled_in(tmp_path: Path, written: str, read: str) -> None:
    """In values, anywhere in the text; a file loses one final newline."""
    (tmp_path / "secret").write_text("two words\n", encoding="utf-8")
    environ = {"A": "one", "N": "7", "EMPTY": ""}
    assert loaded(tmp_path, f"app_env: {written}", environ).settings.app_env == read


def test_a_plain_scalar_gets_its_type_after_substitution(tmp_path: Path) -> None:
    """`limit: ${LIMIT:-100}` is an integer; quoted it is text, and refused."""
    text = "store: {timeout_ms: %s}"
    assert loaded(tmp_path, "store:\n  timeout_ms: ${T:-70}").settings.store.timeout_ms == 70
    assert loaded(tmp_path, "store:\n  timeout_ms: ${T:-70}", {"T": "80"}).settings.store.timeout_ms == 80
    assert "expected an integer, got the value of ${T}" in refused(tmp_path, text % '"${T:-70}"')


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("${NONE}", "the environment variable NONE is not set; ${NONE:-default} has a default"),
        ("${file:gone}", "the file gone cannot be read: no such file or directory"),
        ("${A-b}", "expected ${NAME}, ${NAME:-default} or ${file:/path}; a literal ${ is written $${"),
        ("${A", "expected ${NAME}, ${NAME:-default} or ${file:/path}; a literal ${ is written $${"),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_error(tmp_path: Path, written: str, message: str) -> None:
    """What would follow from the missing value is not told as well."""
    assert (
        refused(tmp_path, f"store:\n  timeout_ms: {written}")
        == f"sidecar.yaml:2: store.timeout_ms: {message}"
    )


def test_values_from_outside_never_appear_in_messages(tmp_path: Path) -> None:
    """Whatever is wrong with them, and wherever else they turn up."""
    text = (
        "store: {url: '${S}', key_prefix: '${S}', timeout_ms: '${S}'}\n"
        "listen: {authz: '${S}'}\nenforcement: ${S}\ndefault_client: ${S}\n"
        "admin: {keys: [{name: '${S}', key: '${SHORT}'}]}\n"
        "clients:\n- id: ${S}\n  hosts: ['${S}:1']\n  exempt_ips: ['${S}']\n  rules:\n"
        "  - {route: '${S}', method: '${S}', identifier_type: '${S}', limit: '${S}', window_seconds: 5}\n"
        "  - {id: '${S}', route: '/${S}?', identifier_type: 'path:${S}', limit: 5, window_seconds: 5}\n"
        "- {id: '${H}', hosts: ['${H}']}\n- {id: '${H}', hosts: ['${H}']}\n- {id: x, hosts: ['${H}']}\n"
    )
    message = refused(tmp_path, text, {"S": "hunter2/secret", "SHORT": "pass", "H": "host-name"})
    assert len(message.splitlines()) > 14
    assert not any(secret in message for secret in ("hunter2", "secret/", "pass", "host-name"))


@pytest.mark.parametrize(
    "written",
    [
        "store: {url: 's3cret://x'}",
        "store: 'redis://:s3cret@h'",
        "store: {url: !s3cret x}",
        "admin: {keys: [{name: a, key: s3cret}]}",
    ],
)
def test_secrets_in_the_file_are_not_repeated(tmp_path: Path, written: str) -> None:
    """Keys and addresses with passwords in them may stand in the file itself."""
    assert "s3cret" not in refused(tmp_path, written)


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    """A settings object in a log line is harmless."""
    text = "store: {url: 'redis://:s3cret-pw@h'}\nadmin: {keys: [{name: a, key: s3cret-key}]}"
    assert "s3cret" not in repr(loaded(tmp_path, text).settings)


def test_an_empty_admin_key_is_not_configured(tmp_path: Path) -> None:
    """So that no key in the environment means no access, and not a key that anyone can guess."""
    text = (
        "admin:\n  keys:\n  - name: a\n    key: ${K:-}\n"
        "  - {name: b, key: '${K:-}'}\n  - {name: c, key: long-enough}"
    )
    assert [key.name for key in loaded(tmp_path, text).settings.admin.keys] == ["c"]
    assert loaded(tmp_path, text).settings.admin.keys[0].role == "viewer"


@pytest.mark.parametrize("word", ["on", "off", "shadow"])
def test_on_and_off_are_words(tmp_path: Path, word: str) -> None:
    """YAML 1.1 would make booleans of them."""
    assert loaded(tmp_path, f"enforcement: {word}").settings.enforcement is Enforcement(word)


@pytest.mark.parametrize(
    ("written", "read"),
    [("2024-01-01", "2024-01-01"), ("12:30", "12:30"), ("1_000", "1_000"), (".inf", ".inf")],
)
def test_dates_and_the_like_stay_text(tmp_path: Path, written: str, read: str) -> None:
    """Only integers, decimal numbers, true, false and null are anything else."""
    assert loaded(tmp_path, f"app_env: {written}").settings.app_env == read


def test_merge_keys_and_anchors_work(tmp_path: Path) -> None:
    """Own keys stand above merged ones, earlier sources above later ones."""
    text = (
        "clients:\n- id: a\n  rules:\n"
        "  - &one {id: one, route: /one, identifier_type: ip, limit: 5, window_seconds: 60}\n"
        "  - &two {<<: *one, id: two, route: /two, limit: 6}\n"
        "  - {<<: [*two, *one], id: three, window_seconds: 7}\n"
    )
    three = loaded(tmp_path, text).clients[0].rules[2]
    assert (three.id, three.route, three.limit, three.window_seconds) == ("three", "/two", 6, 7)


def test_clients_come_from_several_files(tmp_path: Path) -> None:
    """In the order of the files' names, after those of the main file; hidden files are left alone."""
    (tmp_path / "clients.d").mkdir()
    for name in ("b.yaml", "a.yaml", ".hidden.yaml"):
        (tmp_path / "clients.d" / name).write_text(f"clients: [{{id: '{name}', rules: [{RULE}]}}]")
    configuration = loaded(
        tmp_path, f"clients_from: clients.d/*.yaml\nclients: [{{id: own, rules: [{RULE}]}}]"
    )
    assert [client.id for client in configuration.clients] == ["own", "a.yaml", "b.yaml"]
    assert [client.id for client in configuration.settings.clients] == ["own"]
    assert configuration.sources["b.yaml"] == tmp_path / "clients.d" / "b.yaml"
    assert len(configuration.files) == 3


def test_each_file_answers_for_its_own_mistakes(tmp_path: Path) -> None:
    """Broken files, foreign keys, ids and hosts of others, missing files: all with file and line."""
    (tmp_path / "a.yaml").write_text("workers: 1\nclients:\n- id: own\n- {id: a, hosts: [h.io]}")
    (tmp_path / "b.yaml").write_text("clients: [")
    message = refused(
        tmp_path, "clients_from: [a.yaml, 'b*.yaml', gone.yaml]\nclients: [{id: own, hosts: [h.io]}]"
    )
    assert message.splitlines() == [
        "a.yaml:1: workers: unknown key; a file that clients_from names has the key clients alone",
        "a.yaml:3: clients.0.id: the client 'own' stands in sidecar.yaml:2 already",
        "a.yaml:4: clients.1.hosts.0: "
        "the host 'h.io' is claimed by the clients 'own' (sidecar.yaml:2) and 'a'",
        "b.yaml:1: cannot be read as YAML: while parsing a flow node, did not find expected node content",
        "gone.yaml: cannot be read: no such file or directory",
    ]


def test_files_that_give_secrets_are_watched_too(tmp_path: Path) -> None:
    """A secret that is renewed is a new configuration."""
    (tmp_path / "key").write_text("long-enough\n")
    configuration = loaded(tmp_path, "admin: {keys: [{name: a, key: '${file:key}'}]}")
    assert configuration.files == (tmp_path / "sidecar.yaml", tmp_path / "key")
    assert configuration.settings.admin.keys[0].key == "long-enough"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:8000", Endpoint("127.0.0.1", 8000)),
        ("localhost:0", Endpoint("localhost", 0)),
        ("[::1]:80", Endpoint("::1", 80)),
        ("unix:/run/a.sock", Endpoint(path="/run/a.sock")),
    ],
)
def test_endpoints_are_parsed_and_written_alike(tmp_path: Path, text: str, endpoint: Endpoint) -> None:
    """A host and a port, or the path of a socket."""
    assert loaded(tmp_path, f"listen: {{authz: '{text}'}}").settings.listen.authz_endpoint == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize(
    "url", ["embedded:", "embedded:/d", "redis://h", "rediss://h:1/0", "unix:///run/r.sock"]
)
def test_every_kind_of_store_is_accepted(tmp_path: Path, url: str) -> None:
    """As the contract lists them."""
    assert loaded(tmp_path, f"store: {{url: '{url}'}}").settings.store.url == url


def test_names_of_headers_are_lower_case_and_null_turns_one_off(tmp_path: Path) -> None:
    """Header names compare without case; a null header is not looked at."""
    text = (
        "client_ip: {header: null}\nidentity: {session_header: X-Sid, on_missing: deny}\n"
        "store: {on_unavailable: deny}"
    )
    settings = loaded(tmp_path, text).settings
    assert (settings.client_ip.header, settings.identity.session_header) == (None, "x-sid")
    assert (settings.identity.on_missing, settings.store.on_unavailable) == (
        OnMissing.DENY,
        OnUnavailable.DENY,
    )


def test_the_json_schema_knows_keys_bounds_and_words() -> None:
    """Made from the models that check the file, so it cannot differ from them."""
    schema: dict[str, Any] = json_schema()
    rule = schema["$defs"]["Rule"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    assert schema["additionalProperties"] is False
    assert rule["additionalProperties"] is False
    assert rule["required"] == ["route"]
    assert rule["properties"]["limit"]["anyOf"][0] == {"maximum": 2**53, "minimum": 1, "type": "integer"}
    assert schema["$defs"]["Enforcement"]["enum"] == ["on", "shadow", "off"]
    assert all(
        "description" in key
        for model in schema["$defs"].values()
        for key in model.get("properties", {}).values()
    )
