"""Settings and clients as they may be shown."""

import re
from typing import Any

from pydantic import BaseModel

from sidecar.domain.identity import shown_written
from sidecar.domain.rule import Client
from sidecar.infrastructure.validation import dump

MASK = "***"
#: Up to the last @: one may stand in a password.
_USER = re.compile(r"//[^/?#]*@")
_SENTINEL_PASSWORD = re.compile(r"(?<=[?&]sentinel_password=)[^&]*")


def masked(settings: BaseModel) -> dict[str, Any]:
    """JSON-able; what a field keeps out of its `repr` is a secret, of a URL only who connects."""
    return {name: _value(settings, name) for name in type(settings).model_fields if name != "clients"}


def described(client: Client) -> dict[str, Any]:
    """JSON-able; the sessions and keys of callers that a rule names by the beginning of their hash."""
    fields = dump(client)
    for rule in fields["rules"]:
        kind = rule["identifier_type"]
        kinds = tuple(kind) if isinstance(kind, list) else kind
        rule["overrides"] = {shown_written(kinds, name): limit for name, limit in rule["overrides"].items()}
    return fields


def _value(settings: BaseModel, name: str) -> Any:
    value = getattr(settings, name)
    if type(settings).model_fields[name].repr is False and value:
        return _without_passwords(value) if name == "url" else MASK
    return _shown(value)


def _without_passwords(url: str) -> str:
    return _SENTINEL_PASSWORD.sub(MASK, _USER.sub(f"//{MASK}@", url))


def _shown(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return masked(value)
    if isinstance(value, tuple):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return value
