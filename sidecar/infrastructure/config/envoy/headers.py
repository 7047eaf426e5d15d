"""Headers: what the sidecar sees of a request, who wrote it, and what callers see of its answer."""

import re
from collections.abc import Iterable, Iterator, Sequence

from sidecar.infrastructure.config.envoy.chain import Chain
from sidecar.infrastructure.config.envoy.overwriting import opaque_filters, overwritten
from sidecar.infrastructure.config.envoy.part import Finding, Part
from sidecar.infrastructure.config.proxy_needs import FORWARDED, REQUEST_ID, ProxyNeeds

#: Envoy hands these over unasked.
_ALWAYS = frozenset({"host", "content-length", "authorization"})
_PEER = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"
_FROM_CLIENT = re.compile(r"%REQ(?:_WITHOUT_QUERY)?\(", re.IGNORECASE)
_NUMBERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
_IETF = ("ratelimit", "ratelimit-policy")


def of_filter(ours: Part, chain: Chain, needs: ProxyNeeds) -> Iterator[Finding]:
    yield from _Request(ours, chain, needs).findings()
    yield from _answers(ours["http_service"]["authorization_response"], needs)


class _Request:
    """What of a request gets to the sidecar."""

    def __init__(self, ours: Part, chain: Chain, needs: ProxyNeeds) -> None:
        self._chain, self._needs, self._ours = chain, needs, ours
        request = ours["http_service"]["authorization_request"]
        # The second is how it was written before, and still read.
        self._allowed = ours["allowed_headers"] or request["allowed_headers"] or ours["allowed_headers"]
        self._patterns = self._allowed["patterns"].items()
        self._refused = ours["disallowed_headers"]["patterns"].items()
        self._adding = request["headers_to_add"]
        self._added = {each["key"].text.lower(): each["value"] for each in self._adding.items()}

    def findings(self) -> Iterator[Finding]:
        yield from self._wide_patterns()
        yield from self._missing()
        yield from self._address()
        for name in self._needs.identities:
            yield from self._identity(name)
        yield from self._secret()

    def _passes(self, name: str) -> bool:
        if _any_matches(self._refused, name):
            return False
        return name in _ALWAYS or _any_matches(self._patterns, name)

    def _wide_patterns(self) -> Iterator[Finding]:
        for pattern in self._patterns:
            kind = next((key for key in ("prefix", "suffix", "contains", "safe_regex") if pattern[key]), None)
            if kind:
                yield pattern.warning(
                    f"a {kind} lets callers hand over headers that nobody thought of: "
                    "write each name as { exact: NAME, ignore_case: true }"
                )

    def _missing(self) -> Iterator[Finding]:
        needs = self._needs
        given = [name for name in (*needs.needed, *needs.sessions) if self._given(name)]
        lost = [name for name in needs.needed if name not in given and name not in needs.kept_off]
        if lost:
            yield self._allowed.error(
                f"rules need {', '.join(lost)}, which does not reach the sidecar: add {_exact(lost)}"
            )
        sessions = [name for name in needs.sessions if name not in given and name not in lost]
        if sessions and len(sessions) == len(needs.sessions):
            yield self._allowed.error(
                f"rules count by session_id, and neither {' nor '.join(sessions)} reaches the sidecar: "
                f"add {_exact(sessions)}"
            )
        elif sessions:
            yield self._allowed.warning(
                f"sessions in {sessions[0]} do not reach the sidecar: add {_exact(sessions)}"
            )
        if not self._given(REQUEST_ID):
            yield self._allowed.note(
                f"{REQUEST_ID} does not reach the sidecar, whose log has ids of its own then: "
                f"add {_exact([REQUEST_ID])}"
            )

    def _given(self, name: str) -> bool:
        return name in self._added or self._passes(name)

    def _address(self) -> Iterator[Finding]:
        if not self._needs.address:
            return
        header = self._needs.settings.client_ip.of("envoy").header
        if header is None:
            yield from self._forwarded()
        elif (value := self._added.get(header)) is None:
            yield from self._address_not_added(header)
        elif _FROM_CLIENT.search(value.text):
            yield value.error(
                f"{header} is copied from what a client may write: "
                f'write {{ key: {header}, value: "{_PEER}" }}'
            )

    def _address_not_added(self, header: str) -> Iterator[Finding]:
        add = f'add {{ key: {header}, value: "{_PEER}" }} to headers_to_add'
        passes = self._passes(header)
        sure, unsure = self._written(header) if passes else (False, [])
        if sure:
            return
        if passes:
            message = f"{header} is taken as the client's address and callers write it themselves: {add}"
            yield _doubtful(self._allowed, message, unsure)
        else:
            yield self._adding.error(
                f"no address reaches the sidecar, which reads {header} (client_ip.header), "
                f"so all callers share one bucket: {add}"
            )

    def _forwarded(self) -> Iterator[Finding]:
        if not self._given(FORWARDED):
            yield self._allowed.error(
                f"no address reaches the sidecar, which reads {FORWARDED} (client_ip.header is null), "
                f"so all callers share one bucket: add {_exact([FORWARDED])}"
            )

    def _identity(self, name: str) -> Iterator[Finding]:
        used = name in self._needs.used_identities
        if not self._given(name):
            if used:
                yield self._allowed.warning(
                    f"rules need {name}, which does not reach the sidecar: let a filter before ext_authz "
                    f"set it from a verified login, and add {_exact([name])}"
                )
            return
        if not self._passes(name):
            return
        sure, unsure = self._written(name)
        if sure:
            return
        place = next((each for each in self._patterns if _matches(each, name)), self._allowed)
        message = f"{name} says who is counted, and callers write it themselves: {_how_to_remove(name)}"
        if used:
            yield _doubtful(place, message, unsure)
        elif place["exact"]:  # of a pattern it has been said
            yield place.warning(message)

    def _written(self, name: str) -> tuple[bool, list[str]]:
        """Whether the header is overwritten before, and else which filters may do so unseen."""
        before = self._chain.before(self._ours)
        sure = overwritten(self._chain.manager, before, name)
        return sure, [] if sure else opaque_filters(before)

    def _secret(self) -> Iterator[Finding]:
        listen = self._needs.settings.listen
        if not listen.secrets:
            return
        value = self._added.get(listen.secret_header)
        if value is None:
            yield self._adding.error(
                "listen.secret is set, and Envoy does not send it, so every check is refused (403): "
                f"add {{ key: {listen.secret_header}, value: THE-SECRET }}"
            )
        elif _is_literal(value.text) and value.text.replace("%%", "%") not in listen.secrets:
            yield value.error("is none of listen.secret, so every check is refused (403): write that")


def _answers(response: Part, needs: ProxyNeeds) -> Iterator[Finding]:
    options = needs.settings.response
    numbers = (*(_NUMBERS if options.legacy_headers else ()), *(_IETF if options.ietf_headers else ()))
    ratelimited = ("x-envoy-ratelimited",) if options.envoy_ratelimited else ()
    refused = response["allowed_client_headers"]
    if refused:  # without it all of them pass
        lost = _lost(refused, ("retry-after", *numbers, *ratelimited))
        if lost:
            yield refused.error(f"a refusal loses {', '.join(lost)}: add {_exact(lost)}")
        if lost := _lost(refused, ("content-type", "cache-control", "x-ratelimit-rule")):
            yield refused.warning(f"a refusal loses {', '.join(lost)}: add {_exact(lost)}")
        yield from _lost_on_1_37(response)
    passed = response["allowed_client_headers_on_success"]
    if lost := _lost(passed, numbers):
        yield passed.warning(f"callers do not see how much is left ({', '.join(lost)}): add {_exact(lost)}")


def _lost_on_1_37(response: Part) -> Iterator[Finding]:
    if _lost(response["allowed_upstream_headers"], ("retry-after",)):
        yield response["allowed_client_headers"].note(
            "Envoy 1.37.0, and no other version, takes allowed_upstream_headers in its place: "
            "run another one, or repeat the list there"
        )


def _lost(matcher: Part, names: Iterable[str]) -> list[str]:
    patterns = matcher["patterns"].items()
    return [name for name in names if not _any_matches(patterns, name)]


def _any_matches(patterns: Sequence[Part], name: str) -> bool:
    return any(_matches(pattern, name) for pattern in patterns)


def _matches(pattern: Part, name: str) -> bool:
    """Envoy's own names are lower case: what is written otherwise matches with ignore_case alone."""
    fold = pattern["ignore_case"].value is True

    def written(kind: str) -> str | None:
        text = pattern[kind].text
        return (text.lower() if fold else text) or None

    if regex := pattern["safe_regex"]["regex"].text:
        return _full_match(regex, name)
    return bool(
        written("exact") == name
        or ((prefix := written("prefix")) and name.startswith(prefix))
        or ((suffix := written("suffix")) and name.endswith(suffix))
        or ((inner := written("contains")) and inner in name)
    )


def _full_match(regex: str, name: str) -> bool:
    """What is no expression here may be one to Envoy."""
    try:
        return re.fullmatch(regex, name) is not None
    except re.error:
        return True


def _exact(names: Iterable[str]) -> str:
    return ", ".join(f"{{ exact: {name}, ignore_case: true }}" for name in names)


def _is_literal(value: str) -> bool:
    return "%" not in value.replace("%%", "")


def _how_to_remove(name: str) -> str:
    return f"set or remove it before ext_authz (early_header_mutation_extensions: remove: {name})"


def _doubtful(place: Part, message: str, unsure: Sequence[str]) -> Finding:
    """Filters that are programs may well do it."""
    if unsure:
        return place.warning(f"{message}; unless {' or '.join(unsure)} does, which cannot be seen")
    return place.error(message)
