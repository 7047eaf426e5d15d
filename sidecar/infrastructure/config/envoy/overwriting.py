"""Which filters before ext_authz overwrite or remove a header that a client sent."""

from collections.abc import Iterator, Sequence

from sidecar.infrastructure.config.envoy.part import Part

#: Programs, and services that are asked: what they do to headers stands elsewhere.
_OPAQUE = ("lua", "wasm", "ext_proc", "ext_authz", "golang", "dynamic_modules", "composite")
#: Append actions that leave nothing of the client's; those of protobuf's numbers are the same.
_OVERWRITE = ("OVERWRITE_IF_EXISTS_OR_ADD", 2)


def overwritten(manager: Part, before: Sequence[Part], name: str) -> bool:
    """Whether it is seen that no value of the client's is left."""
    early = [each["typed_config"] for each in manager["early_header_mutation_extensions"].items()]
    mutations = [mutation for each in early for mutation in each["mutations"].items()]
    for filter_ in before:
        config = filter_["typed_config"]
        mutations += config["mutations"]["request_mutations"].items()
        if name in _of_tokens(config):
            return True
    return any(_replaces(mutation, name) for mutation in mutations)


def opaque_filters(before: Sequence[Part]) -> list[str]:
    """The names of those that might do it unseen."""
    return [
        name
        for each in before
        if (name := each["name"].text)
        and (each["config_discovery"] or name.rpartition(".")[2] in _OPAQUE or _is_opaque(each))
    ]


def _is_opaque(filter_: Part) -> bool:
    kind = str(filter_["typed_config"]["@type"].value)
    return any(f".{word}." in kind for word in _OPAQUE)


def _replaces(mutation: Part, name: str) -> bool:
    if mutation["remove"].text.lower() == name:
        return True
    append = mutation["append"]
    return append["header"]["key"].text.lower() == name and append["append_action"].value in _OVERWRITE


def _of_tokens(config: Part) -> Iterator[str]:
    """jwt_authn removes what a client sent under these names, and sets them from the token."""
    providers = config["providers"]
    for name in providers.value if isinstance(providers.value, dict) else ():
        provider = providers[name]
        yield provider["forward_payload_header"].text.lower()
        for claim in provider["claim_to_headers"].items():
            yield claim["header_name"].text.lower()
