"""The connection manager: whose address it is, which spelling of a path, and what is asked about twice."""

from collections.abc import Iterator

from sidecar.infrastructure.config.envoy.chain import Chain
from sidecar.infrastructure.config.envoy.part import Finding, Part
from sidecar.infrastructure.config.proxy_needs import ProxyNeeds

#: What the sidecar reads at most (`http/server.py`).
MAX_HEADER_KB, MAX_HEADERS = 128, 512
_SLASHES = ("REJECT_REQUEST", "UNESCAPE_AND_REDIRECT", "UNESCAPE_AND_FORWARD", 2, 3, 4)
_UNDERSCORES = ("REJECT_REQUEST", "DROP_HEADER", 1, 2)


def of_chain(chain: Chain, needs: ProxyNeeds) -> Iterator[Finding]:
    manager = chain.manager
    yield from _address(manager, needs)
    yield from _paths(manager, needs)
    yield from _sizes(manager)
    yield from _twice(chain)
    yield from _cors(chain)


def _address(manager: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    use = manager["use_remote_address"]
    if use.value is True or not needs.address:
        return
    if detection := manager["original_ip_detection_extensions"]:
        yield detection.note("whose word is taken for the client's address cannot be seen here")
    else:
        yield use.error(
            "callers write their own address into x-forwarded-for: write use_remote_address: true, "
            "with xff_num_trusted_hops for the load balancers in front"
        )


def _paths(manager: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    for name in ("normalize_path", "merge_slashes"):
        if manager[name].value is not True:
            yield manager[name].warning(
                "the application gets other spellings of a path than the rules match, "
                f"and may take them for other routes: write {name}: true"
            )
    slashes = manager["path_with_escaped_slashes_action"]
    if slashes.value not in _SLASHES and not needs.settings.paths.decode_slashes:
        yield slashes.warning(
            "an application that reads %2F as a slash is reached by a path that other rules match: "
            "write path_with_escaped_slashes_action: REJECT_REQUEST"
        )
    underscores = manager["common_http_protocol_options"]["headers_with_underscores_action"]
    if underscores.value not in _UNDERSCORES:
        yield underscores.warning(
            "x_user_id is x-user-id to some applications: "
            "write headers_with_underscores_action: REJECT_REQUEST"
        )


def _sizes(manager: Part) -> Iterator[Finding]:
    size, count = (
        manager["max_request_headers_kb"],
        manager["common_http_protocol_options"]["max_headers_count"],
    )
    for part, most in ((size, MAX_HEADER_KB), (count, MAX_HEADERS)):
        if (number := part.number) is not None and number > most:
            yield part.warning(
                f"the sidecar answers 400 to more than {most}, which then is the client's answer: "
                f"write {part.where[-1]}: {most} at most"
            )


def _twice(chain: Chain) -> Iterator[Finding]:
    for again in chain.ours[1:]:
        yield again.error("a second filter asks the sidecar, so every request is charged twice: leave it out")
    config = chain.manager["route_config"]
    if chain.manager["rds"] or chain.manager["scoped_routes"]:
        yield chain.manager.note(
            "the routes come from elsewhere (RDS): internal_redirect_policy and what they switch off "
            "cannot be seen"
        )
    for host in config["virtual_hosts"].items():
        for route in host["routes"].items():
            if policy := route["route"]["internal_redirect_policy"]:
                yield policy.warning(
                    "every internal redirect is asked about, and charged, once more: "
                    "leave it out, or disable ext_authz on the routes that it leads to"
                )


def _cors(chain: Chain) -> Iterator[Finding]:
    first = chain.ours[0]
    before = {_kind(each) for each in chain.before(first)}
    behind = next((each for each in chain.after(first) if _kind(each) == "Cors"), None)
    if "Cors" in before:
        return
    if behind:
        yield behind.named("cors").warning(
            "stands behind ext_authz, so preflights are counted and browsers show a 429 as a network error: "
            "put it before"
        )
    else:
        yield chain.manager["http_filters"].note(
            "no cors filter stands before ext_authz: if browsers of other origins call, "
            "preflights are counted and they show a 429 as a network error"
        )


def _kind(filter_: Part) -> str:
    return str(filter_["typed_config"]["@type"].value).rpartition(".")[2]
