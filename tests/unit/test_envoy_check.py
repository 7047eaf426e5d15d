"""One thing wrong with envoy.yaml at a time, and what is said about it."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sidecar.infrastructure.config import ConfigurationError, load
from sidecar.infrastructure.config.envoy.check import check_envoy
from sidecar.infrastructure.config.envoy.part import Finding, Severity
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds

ROOT = Path(__file__).parents[2]
ENVOY = (ROOT / "envoy.yaml").read_text("utf-8")
SIDECAR = "clients: [{id: shop, rules: [{route: /*, identifier_type: %s, limit: 5, window_seconds: 60}]}]\n"
BY_IP = SIDECAR % "ip"
EXT_AUTHZ = "          - name: envoy.filters.http.ext_authz\n"
ROUTER = "          - name: envoy.filters.http.router\n"
ALLOWED = "              allowed_headers:\n                patterns:\n"
ADDED = '                  - { key: x-client-ip, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" }\n'
TYPES = "type.googleapis.com/envoy.extensions.filters.http"


def exact(name: str) -> str:
    return f"{{ exact: {name}, ignore_case: true }}"


def allowed(name: str) -> str:
    """What lets a header through to the sidecar."""
    return f"{ALLOWED}                - {exact(name)}\n"


def a_filter(name: str, kind: str, fields: str) -> str:
    return (
        f"          - name: {name}\n            typed_config:\n"
        f'              "@type": {TYPES}.{name.rpartition(".")[2]}.v3.{kind}\n'
        f"              {fields}\n"
    )


def without(text: str, begin: str, end: str) -> str:
    """The text from a beginning to before an end, to be replaced by nothing."""
    start = text.index(begin)
    return text[start : text.index(end, start)]


OURS = without(ENVOY, EXT_AUTHZ, ROUTER)
CLIENT_HEADERS = "                  allowed_client_headers:"
UPSTREAM_HEADERS = "                  allowed_upstream_headers:\n"


def check(folder: Path, envoy: str, config: str) -> list[Finding]:
    sidecar, path = folder / "sidecar.yaml", folder / "envoy.yaml"
    sidecar.write_text(config, encoding="utf-8")
    path.write_text(envoy, encoding="utf-8")
    configuration = load(sidecar, {})
    return check_envoy(path, ProxyNeeds(configuration.settings, configuration.clients))


def told(findings: list[Finding]) -> list[str]:
    return [f"{each.severity}: {each.problem.where}: {each.problem.message}" for each in findings]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`old` of envoy.yaml replaced by `new` gives the message, at a line that has `at` in it."""

    old: str
    new: str
    says: str
    at: str
    config: str = BY_IP


def test_our_own_configurations_fit_together(tmp_path: Path) -> None:
    """No error and no warning: only that browsers of other origins would need a cors filter."""
    config = (ROOT / "config" / "sidecar.yaml").read_text("utf-8")
    findings = check(tmp_path, ENVOY, config)
    assert [each for each in findings if each.severity is not Severity.NOTE] == []
    assert told(findings) == [
        "note: http_connection_manager.http_filters: no cors filter stands before ext_authz: if browsers of "
        "other origins call, preflights are counted and they show a 429 as a network error"
    ]


SERVICE = [
    Case(
        old="path_prefix: /authz ",
        new="path_prefix: /check ",
        at="path_prefix",
        says="error: ext_authz.http_service.path_prefix: got '/check', and the sidecar serves Envoy at "
        "/authz alone: write path_prefix: /authz",
    ),
    Case(
        old="path_prefix: /authz ",
        new="dummy: /check ",
        at="http_service",
        says="error: ext_authz.http_service.path_prefix: is missing, and the sidecar serves Envoy at /authz "
        "alone: write path_prefix: /authz",
    ),
    Case(
        old="path_prefix: /authz ",
        new="path_prefix: /authz/ ",
        at="path_prefix",
        says="warning: ext_authz.http_service.path_prefix: every target begins with two slashes then: "
        "write path_prefix: /authz",
    ),
    Case(
        old="path_prefix: /authz ",
        new="path_prefix: /clients/shp/authz ",
        at="path_prefix",
        says="error: ext_authz.http_service.path_prefix: no file defines the client 'shp': unless the API "
        "made it, no request is limited; write one of shop",
    ),
    Case(
        old="path_prefix: /authz ",
        new="path_override: /authz ",
        at="path_override",
        says="error: ext_authz.http_service.path_override: hides what the client asked for from the rules: "
        "write path_prefix: /authz",
    ),
    Case(
        old="cluster: sidecar, timeout: 0.25s",
        new="cluster: sidecar, timeout: 0.1s",
        at="server_uri",
        says="error: ext_authz.http_service.server_uri.timeout: 0.1s is too short: the sidecar may wait 50 "
        "ms for its store (store.timeout_ms), and Envoy gives up before it can say so; write timeout: 0.25s, "
        "at least 0.15s",
    ),
    Case(
        old="cluster: sidecar, timeout: 0.25s",
        new="cluster: sidecar, timeout: 250",
        at="server_uri",
        says="error: ext_authz.http_service.server_uri.timeout: is missing or no duration, and Envoy needs "
        "one: write timeout: 0.25s",
    ),
    Case(
        old="path_prefix: /authz ",
        new="retry_policy: { num_retries: 1 }\n                path_prefix: /authz ",
        at="retry_policy:",
        says="error: ext_authz.http_service.retry_policy: a check asked twice is charged twice: "
        "leave retry_policy out, or retry on connect-failure alone",
    ),
    Case(
        old="path_prefix: /authz ",
        new="retry_policy: { retry_on: connect-failure }\n                path_prefix: /authz ",
        at="retry_policy:",
        says="warning: ext_authz.http_service.retry_policy: before Envoy 1.37 retry_on is not heeded here, "
        "and a check asked twice is charged twice: leave retry_policy out",
    ),
    Case(
        old="failure_mode_allow: true",
        new="failure_mode_allow: true",
        config="store: {on_unavailable: deny}\n" + BY_IP,
        at="failure_mode_allow",
        says="error: ext_authz.failure_mode_allow: lets requests pass that store.on_unavailable (deny) "
        "refuses, since Envoy takes its 503 for a failure: write failure_mode_allow: false and "
        "status_on_error: { code: ServiceUnavailable }",
    ),
    Case(
        old="failure_mode_allow: true",
        new="failure_mode_allow: true",
        config=BY_IP.replace("limit", "id: all, on_unavailable: deny, limit"),
        at="failure_mode_allow",
        says="error: ext_authz.failure_mode_allow: lets requests pass that on_unavailable of the rule 'all' "
        "of 'shop' (deny) refuses, since Envoy takes its 503 for a failure: write failure_mode_allow: false "
        "and status_on_error: { code: ServiceUnavailable }",
    ),
    Case(
        old="failure_mode_allow: true\n              status_on_error: { code: ServiceUnavailable }",
        new="failure_mode_allow: false",
        at="failure_mode_allow",
        says="warning: ext_authz.failure_mode_allow: without status_on_error callers get 403 while the "
        "sidecar is away, which reads like a verdict: write status_on_error: { code: ServiceUnavailable }",
    ),
    Case(
        old="code: ServiceUnavailable",
        new="code: TooManyRequests",
        at="status_on_error",
        says="warning: ext_authz.status_on_error.code: 429 says that a limit is used up, which nobody knows "
        "then: write status_on_error: { code: ServiceUnavailable }",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="with_request_body: { max_request_bytes: 1024 }",
        at="with_request_body",
        says="warning: ext_authz.with_request_body: is not needed, and Envoy answers 413 to longer bodies "
        "without asking: leave it out",
    ),
]

SERVICE += [
    Case(
        old="failure_mode_allow: true",
        new="failure_mode_allow: true",
        config="store: {on_unavailable: deny}\nresponse: {unavailable_status: 403}\n" + BY_IP,
        at="failure_mode_allow",
        says="warning: ext_authz.failure_mode_allow: requests pass while the sidecar is away, though "
        "store.on_unavailable is deny: write failure_mode_allow: false and status_on_error: { code: 403 }",
    ),
    Case(
        old=EXT_AUTHZ,
        new=EXT_AUTHZ + "            disabled: true\n",
        at="disabled",
        says="warning: http_connection_manager.http_filters.0.disabled: only routes that enable the filter "
        "are asked about: leave it out",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="filter_enabled: { default_value: { numerator: 10 } }",
        at="filter_enabled",
        says="note: ext_authz.filter_enabled: some requests may pass unasked: how many, Envoy's runtime says",
    ),
]

REQUEST_HEADERS = [
    Case(
        old=ALLOWED,
        new=allowed("x-user-id"),
        config=SIDECAR % "'header:X-User-Id'",
        at="exact: x-user-id",
        says="error: ext_authz.allowed_headers.patterns.0: x-user-id says who is counted, and callers write "
        "it themselves: set or remove it before ext_authz "
        "(early_header_mutation_extensions: remove: x-user-id)",
    ),
    Case(
        old=f"- {exact('x-api-key')}",
        new="",
        config=SIDECAR % "'header:X-API-Key'",
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: rules need x-api-key, which does not reach the sidecar: "
        f"add {exact('x-api-key')}",
    ),
    Case(
        old=exact("user-agent"),
        new="{ exact: User-Agent }",
        config=SIDECAR % "ip_user_agent",
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: rules need user-agent, which does not reach the sidecar: "
        f"add {exact('user-agent')}",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="disallowed_headers: { patterns: [{ exact: x-api-key }] }",
        config=SIDECAR % "'header:x-api-key'",
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: rules need x-api-key, which does not reach the sidecar: "
        f"add {exact('x-api-key')}",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="stat_prefix: ratelimit",
        config="count_preflights: false\n" + BY_IP,
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: rules need origin, access-control-request-method, which does "
        f"not reach the sidecar: add {exact('origin')}, {exact('access-control-request-method')}",
    ),
    Case(
        old=without(
            ENVOY, f"                - {exact('x-session-id')}", f"                - {exact('user-agent')}"
        ),
        new="",
        config=SIDECAR % "session_id",
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: rules count by session_id, and neither x-session-id nor "
        f"cookie reaches the sidecar: add {exact('x-session-id')}, {exact('cookie')}",
    ),
    Case(
        old=f"- {exact('cookie')}",
        new="",
        config=SIDECAR % "session_id",
        at="allowed_headers:",
        says="warning: ext_authz.allowed_headers: sessions in cookie do not reach the sidecar: "
        f"add {exact('cookie')}",
    ),
    Case(
        old=f"- {exact('x-request-id')}    # the same id in the sidecar's log",
        new="",
        at="allowed_headers:",
        says="note: ext_authz.allowed_headers: x-request-id does not reach the sidecar, whose log has ids of "
        f"its own then: add {exact('x-request-id')}",
    ),
    Case(
        old=ADDED,
        new="",
        at="headers_to_add:",
        says="error: ext_authz.http_service.authorization_request.headers_to_add: no address reaches the "
        "sidecar, which reads x-client-ip (client_ip.header), so all callers share one bucket: add "
        '{ key: x-client-ip, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" } to headers_to_add',
    ),
    Case(
        old="%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        new="%REQ(X-REAL-IP)%",
        at="x-client-ip",
        says="error: ext_authz.http_service.authorization_request.headers_to_add.0.value: x-client-ip is "
        "copied from what a client may write: write "
        '{ key: x-client-ip, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" }',
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="stat_prefix: ratelimit",
        config="client_ip: {header: x-edge-ip}\n" + BY_IP,
        at="headers_to_add:",
        says="error: ext_authz.http_service.authorization_request.headers_to_add: no address reaches the "
        "sidecar, which reads x-edge-ip (client_ip.header), so all callers share one bucket: add "
        '{ key: x-edge-ip, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" } to headers_to_add',
    ),
    Case(
        old=ALLOWED,
        new=allowed("x-edge-ip"),
        config="client_ip: {header: x-edge-ip}\n" + BY_IP,
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: x-edge-ip is taken as the client's address and callers write "
        'it themselves: add { key: x-edge-ip, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" } '
        "to headers_to_add",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="stat_prefix: ratelimit",
        config="client_ip: {header: null}\n" + BY_IP,
        at="allowed_headers:",
        says="error: ext_authz.allowed_headers: no address reaches the sidecar, which reads x-forwarded-for "
        f"(client_ip.header is null), so all callers share one bucket: add {exact('x-forwarded-for')}",
    ),
    Case(
        old=ALLOWED,
        new=ALLOWED + "                - { prefix: x-, ignore_case: true }\n",
        at="prefix: x-,",
        says="warning: ext_authz.allowed_headers.patterns.0: a prefix lets callers hand over headers that "
        "nobody thought of: write each name as { exact: NAME, ignore_case: true }",
    ),
    Case(
        old=ALLOWED,
        new=ALLOWED + '                - { safe_regex: { regex: "x-b3-.*" } }\n',
        at="safe_regex",
        says="warning: ext_authz.allowed_headers.patterns.0: a safe_regex lets callers hand over headers "
        "that nobody thought of: write each name as { exact: NAME, ignore_case: true }",
    ),
    Case(
        old=ALLOWED,
        new=allowed("x-user-id"),
        config=SIDECAR % "user_id",
        at="exact: x-user-id",
        says="error: ext_authz.allowed_headers.patterns.0: x-user-id says who is counted, and callers write "
        "it themselves: set or remove it before ext_authz (early_header_mutation_extensions: "
        "remove: x-user-id)",
    ),
    Case(
        old=ALLOWED,
        new=allowed("x-tenant"),
        config="client_header: x-tenant\n" + BY_IP,
        at="exact: x-tenant",
        says="error: ext_authz.allowed_headers.patterns.0: x-tenant says who is counted, and callers write "
        "it themselves: set or remove it before ext_authz (early_header_mutation_extensions: "
        "remove: x-tenant)",
    ),
    Case(
        old=ALLOWED,
        new=allowed("x-jwt-payload"),
        at="exact: x-jwt-payload",
        says="warning: ext_authz.allowed_headers.patterns.0: x-jwt-payload says who is counted, and callers "
        "write it themselves: set or remove it before ext_authz "
        "(early_header_mutation_extensions: remove: x-jwt-payload)",
    ),
    Case(
        old=EXT_AUTHZ + without(OURS, "            typed_config", ALLOWED) + ALLOWED,
        new=a_filter("envoy.filters.http.lua", "Lua", "stat_prefix: login")
        + EXT_AUTHZ
        + without(OURS, "            typed_config", ALLOWED)
        + allowed("x-user-id"),
        config=SIDECAR % "user_id",
        at="exact: x-user-id",
        says="warning: ext_authz.allowed_headers.patterns.0: x-user-id says who is counted, and callers "
        "write it themselves: set or remove it before ext_authz (early_header_mutation_extensions: "
        "remove: x-user-id); unless envoy.filters.http.lua does, which cannot be seen",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="stat_prefix: ratelimit",
        config=SIDECAR % "'jwt_claim:sub'",
        at="allowed_headers:",
        says="warning: ext_authz.allowed_headers: rules need x-jwt-payload, which does not reach the "
        "sidecar: let a filter before ext_authz set it from a verified login, and add "
        f"{exact('x-jwt-payload')}",
    ),
    Case(
        old="stat_prefix: ratelimit",
        new="stat_prefix: ratelimit",
        config="listen: {secret: 0123456789abcdef}\n" + BY_IP,
        at="headers_to_add:",
        says="error: ext_authz.http_service.authorization_request.headers_to_add: listen.secret is set, and "
        "Envoy does not send it, so every check is refused (403): "
        "add { key: x-sidecar-secret, value: THE-SECRET }",
    ),
    Case(
        old=ADDED,
        new=ADDED + "                  - { key: X-Sidecar-Secret, value: another-one }\n",
        config="listen: {secret: 0123456789abcdef}\n" + BY_IP,
        at="another-one",
        says="error: ext_authz.http_service.authorization_request.headers_to_add.1.value: is none of "
        "listen.secret, so every check is refused (403): write that",
    ),
]

RESPONSE_HEADERS = [
    Case(
        old="                    - { exact: retry-after, ignore_case: true }\n"
        "                    - { prefix: x-ratelimit-, ignore_case: true }\n"
        "                    - { prefix: ratelimit, ignore_case: true }      # for response.ietf_headers\n",
        new="                    - { exact: x-ratelimit-rule }\n",
        at="allowed_client_headers:",
        says="error: ext_authz.http_service.authorization_response.allowed_client_headers: a refusal loses "
        "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset: add "
        + ", ".join(
            map(exact, ("retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"))
        ),
    ),
    Case(
        old="                    - { exact: cache-control, ignore_case: true }   # no-store\n",
        new="",
        at="allowed_client_headers:",
        says="warning: ext_authz.http_service.authorization_response.allowed_client_headers: a refusal loses "
        f"cache-control: add {exact('cache-control')}",
    ),
    Case(
        old=without(
            ENVOY, "                  allowed_client_headers_on_success:", "                  # Meant for"
        ),
        new="",
        at="authorization_response:",
        says="warning: ext_authz.http_service.authorization_response.allowed_client_headers_on_success: "
        "callers do not see how much is left (x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset): "
        "add " + ", ".join(map(exact, ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"))),
    ),
    Case(
        old=without(ENVOY, UPSTREAM_HEADERS, ROUTER),
        new="",
        at="allowed_client_headers:",
        says="note: ext_authz.http_service.authorization_response.allowed_client_headers: Envoy 1.37.0, and "
        "no other version, takes allowed_upstream_headers in its place: run another one, or repeat "
        "the list there",
    ),
]

EDGE = [
    Case(
        old="use_remote_address: true\n",
        new="use_remote_address: false\n",
        at="use_remote_address",
        says="error: http_connection_manager.use_remote_address: callers write their own address into "
        "x-forwarded-for: write use_remote_address: true, with xff_num_trusted_hops for the load balancers "
        "in front",
    ),
    Case(
        old="use_remote_address: true\n",
        new="original_ip_detection_extensions: [{ name: own }]\n",
        at="original_ip_detection_extensions",
        says="note: http_connection_manager.original_ip_detection_extensions: whose word is taken for the "
        "client's address cannot be seen here",
    ),
    Case(
        old="normalize_path: true\n",
        new="normalize_path: false\n",
        at="normalize_path",
        says="warning: http_connection_manager.normalize_path: the application gets other spellings of a "
        "path than the rules match, and may take them for other routes: write normalize_path: true",
    ),
    Case(
        old="          merge_slashes: true\n",
        new="",
        at="typed_config:",
        says="warning: http_connection_manager.merge_slashes: the application gets other spellings of a path "
        "than the rules match, and may take them for other routes: write merge_slashes: true",
    ),
    Case(
        old="path_with_escaped_slashes_action: REJECT_REQUEST",
        new="path_with_escaped_slashes_action: KEEP_UNCHANGED",
        at="path_with_escaped_slashes_action",
        says="warning: http_connection_manager.path_with_escaped_slashes_action: an application that reads "
        "%2F as a slash is reached by a path that other rules match: "
        "write path_with_escaped_slashes_action: REJECT_REQUEST",
    ),
    Case(
        old="headers_with_underscores_action: REJECT_REQUEST",
        new="headers_with_underscores_action: ALLOW",
        at="headers_with_underscores_action",
        says="warning: http_connection_manager.common_http_protocol_options.headers_with_underscores_action: "
        "x_user_id is x-user-id to some applications: write headers_with_underscores_action: REJECT_REQUEST",
    ),
    Case(
        old="max_request_headers_kb: 96",
        new="max_request_headers_kb: 256",
        at="max_request_headers_kb",
        says="warning: http_connection_manager.max_request_headers_kb: the sidecar answers 400 to more than "
        "128, which then is the client's answer: write max_request_headers_kb: 128 at most",
    ),
    Case(
        old="max_headers_count: 256",
        new="max_headers_count: 1000",
        at="max_headers_count",
        says="warning: http_connection_manager.common_http_protocol_options.max_headers_count: the sidecar "
        "answers 400 to more than 512, which then is the client's answer: write max_headers_count: "
        "512 at most",
    ),
    Case(
        old="route: { cluster: app, timeout: 60s }",
        new="route: { cluster: app, internal_redirect_policy: {} }",
        at="internal_redirect_policy",
        says="warning: http_connection_manager.route_config.virtual_hosts.0.routes.0.route."
        "internal_redirect_policy: every internal redirect is asked about, and charged, once more: leave it "
        "out, or disable ext_authz on the routes that it leads to",
    ),
    Case(
        old=without(ENVOY, "          route_config:", "          http_filters:"),
        new="          rds: { route_config_name: all }\n",
        at="typed_config:",
        says="note: http_connection_manager: the routes come from elsewhere (RDS): internal_redirect_policy "
        "and what they switch off cannot be seen",
    ),
    Case(
        old=OURS,
        new=OURS + OURS,
        at="typed_config:",
        says="error: ext_authz: a second filter asks the sidecar, so every request is charged twice: "
        "leave it out",
    ),
    Case(
        old=ROUTER,
        new=a_filter("envoy.filters.http.cors", "Cors", "{}").replace("              {}\n", "") + ROUTER,
        at="envoy.filters.http.cors",
        says="warning: cors: stands behind ext_authz, so preflights are counted and browsers show a 429 as a "
        "network error: put it before",
    ),
]

CLUSTER = [
    Case(
        old="cluster: sidecar, timeout",
        new="cluster: sidcar, timeout",
        at="server_uri",
        says="error: ext_authz.http_service.server_uri.cluster: there is no cluster 'sidcar', so no check "
        "arrives: name another, or add it to clusters",
    ),
    Case(
        old="port_value: 8000",
        new="port_value: 9000",
        at="port_value: 9000",
        says="warning: cluster sidecar.load_assignment.endpoints.0.lb_endpoints.0.endpoint.address: is not "
        "where the sidecar listens (listen.authz: 127.0.0.1:8000), unless the port is another one from where "
        "Envoy is",
    ),
    Case(
        old="explicit_http_config: { http_protocol_options: {} }",
        new="explicit_http_config: { http2_protocol_options: {} }",
        at="http2_protocol_options",
        says="error: cluster sidecar.typed_extension_protocol_options.envoy.extensions.upstreams.http.v3."
        "HttpProtocolOptions.explicit_http_config.http2_protocol_options: the sidecar speaks HTTP/1.1: "
        "write explicit_http_config: { http_protocol_options: {} }",
    ),
    Case(
        old="connect_timeout: 0.25s",
        new="connect_timeout: 2s",
        at="connect_timeout",
        says="warning: cluster sidecar.connect_timeout: 2s is longer than a check may take (0.25s), so "
        "checks pile up behind connections that do not come about: write connect_timeout: 0.25s",
    ),
    Case(
        old="common_http_protocol_options: { idle_timeout: 60s }",
        new="",
        at="HttpProtocolOptions:",
        says="warning: cluster sidecar.typed_extension_protocol_options.envoy.extensions.upstreams.http.v3."
        "HttpProtocolOptions.common_http_protocol_options.idle_timeout: no idle_timeout (Envoy's default is "
        "an hour, and the sidecar closes connections after 3630 s, maybe with a check on its way): "
        "write common_http_protocol_options: { idle_timeout: 60s }",
    ),
    Case(
        old="common_http_protocol_options: { idle_timeout: 60s }",
        new="common_http_protocol_options: { idle_timeout: 3630s }",
        at="3630s",
        says="error: cluster sidecar.typed_extension_protocol_options.envoy.extensions.upstreams.http.v3."
        "HttpProtocolOptions.common_http_protocol_options.idle_timeout: 3630s is none or too long: the "
        "sidecar closes connections after 3630 s, maybe with a check on its way; "
        "write common_http_protocol_options: { idle_timeout: 60s }",
    ),
    Case(
        old="max_pending_requests: 65536, max_requests: 65536",
        new="max_pending_requests: 1024",
        at="thresholds",
        says="warning: cluster sidecar.circuit_breakers.thresholds.0: max_pending_requests and max_requests "
        "at 1024 or less: in a flood further checks count as failed, unasked; "
        "write max_pending_requests: 65536, max_requests: 65536",
    ),
]


@pytest.mark.parametrize(
    "case", [*SERVICE, *REQUEST_HEADERS, *RESPONSE_HEADERS, *EDGE, *CLUSTER], ids=lambda case: case.says[:70]
)
def test_what_is_wrong_is_said_once_with_its_line_and_what_to_write(tmp_path: Path, case: Case) -> None:
    """And nothing else is, but what is said of envoy.yaml itself."""
    assert case.old in ENVOY
    envoy = ENVOY.replace(case.old, case.new)
    findings = check(tmp_path, envoy, case.config)
    usual = "http_connection_manager.http_filters: no cors filter"
    new = [each for each in findings if usual not in str(each.problem)]
    assert told(new) == [case.says]
    for each in new:
        assert each.problem.file == tmp_path / "envoy.yaml"
        line = envoy.splitlines()[(each.problem.line or 0) - 1]
        assert case.at in line, line


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            OURS,
            "",
            "error: http_connection_manager.http_filters: no filter asks the sidecar: add "
            "envoy.filters.http.ext_authz with an http_service (`sidecar recipe envoy` prints one)",
        ),
        (
            OURS,
            "          - name: limiter\n            config_discovery: {}\n",
            "warning: http_connection_manager.http_filters: no filter asks the sidecar, unless limiter does, "
            "which is configured elsewhere: add envoy.filters.http.ext_authz with an http_service "
            "(`sidecar recipe envoy` prints one)",
        ),
        (
            ENVOY,
            "dynamic_resources: {lds_config: {ads: {}}}\n",
            "warning: dynamic_resources: the listeners come from elsewhere (LDS), nothing of them can be "
            "seen: check the file with them",
        ),
        (
            ENVOY,
            "static_resources: {}\n",
            "error: : no http_connection_manager is in here, so nothing asks the sidecar: add "
            "envoy.filters.http.ext_authz with an http_service (`sidecar recipe envoy` prints one)",
        ),
    ],
)
def test_an_envoy_that_does_not_ask_is_one_finding(tmp_path: Path, old: str, new: str, says: str) -> None:
    """All the rest follows from it. What is configured elsewhere may do it."""
    assert told(check(tmp_path, ENVOY.replace(old, new), BY_IP)) == [says]


def test_a_cluster_from_elsewhere_is_said_not_to_be_seen(tmp_path: Path) -> None:
    """It is no error of this file."""
    envoy = ENVOY.replace("cluster: sidecar, timeout", "cluster: other, timeout")
    findings = check(tmp_path, f"{envoy}\ndynamic_resources: {{cds_config: {{ads: {{}}}}}}\n", BY_IP)
    assert (
        "note: ext_authz.http_service.server_uri.cluster: the cluster 'other' comes from elsewhere (CDS), "
        "nothing of it can be seen"
    ) in told(findings)


def test_a_listener_that_asks_nobody_is_said_beside_one_that_does(tmp_path: Path) -> None:
    """It may be meant so: for probes, say."""
    other = yaml.safe_load(ENVOY)
    listeners = other["static_resources"]["listeners"]
    listeners += yaml.safe_load(ENVOY.replace(OURS, ""))["static_resources"]["listeners"]
    findings = check(tmp_path, yaml.safe_dump(other), BY_IP)
    assert "note: http_connection_manager: asks nobody, so what comes in here is not limited" in told(
        findings
    )


OVERWRITING = {
    "early": (
        "          normalize_path: true\n",
        "          normalize_path: true\n          early_header_mutation_extensions:\n"
        "          - { name: h, typed_config: { mutations: [{ remove: X-User-Id }] } }\n",
    ),
    "mutation filter": (
        EXT_AUTHZ,
        a_filter(
            "envoy.filters.http.header_mutation",
            "HeaderMutation",
            "mutations: { request_mutations: [{ append: { header: { key: x-user-id, value: a }, "
            "append_action: OVERWRITE_IF_EXISTS_OR_ADD } }] }",
        )
        + EXT_AUTHZ,
    ),
    "payload": (
        EXT_AUTHZ,
        a_filter(
            "envoy.filters.http.jwt_authn",
            "JwtAuthentication",
            "providers: { p: { forward_payload_header: x-user-id } }",
        )
        + EXT_AUTHZ,
    ),
    "claim": (
        EXT_AUTHZ,
        a_filter(
            "envoy.filters.http.jwt_authn",
            "JwtAuthentication",
            "providers: { p: { claimToHeaders: [{ headerName: X-User-Id, claimName: sub }] } }",
        )
        + EXT_AUTHZ,
    ),
}


@pytest.mark.parametrize("kind", OVERWRITING)
def test_a_header_that_is_overwritten_before_is_nobodys_to_forge(tmp_path: Path, kind: str) -> None:
    """By what Envoy does first, by a filter before ext_authz, or from a verified token."""
    old, new = OVERWRITING[kind]
    assert old in ENVOY
    envoy = ENVOY.replace(ALLOWED, allowed("x-user-id")).replace(old, new)
    assert all(each.severity is Severity.NOTE for each in check(tmp_path, envoy, SIDECAR % "user_id"))


def test_a_header_that_is_appended_to_is_still_the_clients(tmp_path: Path) -> None:
    """Its first value is."""
    old, new = OVERWRITING["mutation filter"]
    new = new.replace("OVERWRITE_IF_EXISTS_OR_ADD", "APPEND_IF_EXISTS_OR_ADD")
    envoy = ENVOY.replace(ALLOWED, allowed("x-user-id")).replace(old, new)
    assert [each.severity for each in check(tmp_path, envoy, SIDECAR % "user_id")].count(Severity.ERROR) == 1


def test_another_service_that_is_asked_by_http_is_not_taken_for_ours(tmp_path: Path) -> None:
    """A login before the sidecar has headers and retries of its own."""
    login = a_filter(
        "envoy.filters.http.ext_authz",
        "ExtAuthz",
        "http_service: { server_uri: { uri: http://l, cluster: app, timeout: 2s }, retry_policy: {} }",
    )
    findings = check(tmp_path, ENVOY.replace(EXT_AUTHZ, login + EXT_AUTHZ), BY_IP)
    assert all(each.severity is Severity.NOTE for each in findings)


@pytest.mark.parametrize("indent", [2, "\t"])
def test_json_is_read_as_envoy_reads_it(tmp_path: Path, indent: int | str) -> None:
    """Indented by tabs too, and with field names in camelCase."""
    text = json.dumps(yaml.safe_load(ENVOY), indent=indent).replace("path_prefix", "pathPrefix")
    findings = check(tmp_path, text.replace('"/authz"', '"/check"'), BY_IP)
    [error] = [each for each in findings if each.severity is Severity.ERROR]
    assert error.problem.where == "ext_authz.http_service.pathPrefix"
    assert "/check" in text.replace('"/authz"', '"/check"').splitlines()[(error.problem.line or 0) - 1]


def test_what_looks_like_a_reference_is_envoys_own(tmp_path: Path) -> None:
    """Nothing of the environment gets into another program's file."""
    assert check(tmp_path, ENVOY.replace("stat_prefix: edge", "stat_prefix: ${NOT_SET}"), BY_IP)


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n"])
def test_a_file_that_is_no_mapping_is_an_error_of_the_configuration(tmp_path: Path, text: str) -> None:
    """With its place, as of the sidecar's own."""
    with pytest.raises(ConfigurationError):
        check(tmp_path, text, BY_IP)
