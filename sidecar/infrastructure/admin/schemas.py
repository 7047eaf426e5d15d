"""JSON Schemas of bodies, exact in both directions: what is read may leave out what has a default and must
have no other key; what is written has every key, always.
"""

from collections.abc import Collection
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from sidecar.domain.algorithms import MAX_INTEGER
from sidecar.domain.refusal import MAX_BODY, MAX_CONTENT_TYPE, MEDIA_TYPE
from sidecar.domain.rule import BLOCK, ID_PATTERN, UNLIMITED, Mode

Schema = dict[str, Any]
Direction = Literal["validation", "serialization"]
_PLACE = "#/components/schemas/"
_ID = f"^{ID_PATTERN.pattern}$"
_OVERRIDE = [
    {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER},
    {"type": "string", "enum": [BLOCK, UNLIMITED]},
]
_METHOD = {"type": "string", "pattern": r"^(\*|[A-Z0-9!#$%&'+.^_`|~-]{1,64})$"}
_IDLE: Schema = {"properties": {"mode": {"enum": [Mode.EXEMPT, Mode.BLOCK]}}, "required": ["mode"]}
#: What a rule that counts must have.
_COUNTING: Schema = {
    "if": {"not": _IDLE},
    "then": {
        "required": ["identifier_type", "limit", "window_seconds"],
        "properties": {
            "identifier_type": {"type": ["string", "array"]},
            "limit": {"type": "integer"},
            "window_seconds": {"type": "integer"},
        },
    },
}
_RULE: Schema = {
    "id": {"pattern": f"^$|{_ID}"},
    "route": {"pattern": "^/"},
    "method": {"anyOf": [_METHOD, {"type": "array", "items": _METHOD, "minItems": 1}]},
    "overrides": {"additionalProperties": {"anyOf": _OVERRIDE}},
}
_REFUSAL: Schema = {
    "status": {"not": {"enum": [401, 407]}},
    "body": {"maxLength": MAX_BODY},
    "content_type": {"maxLength": MAX_CONTENT_TYPE, "pattern": f"^{MEDIA_TYPE}$"},
}
#: In the API a rule is a policy.
_NAMES = {
    "Client": "NewClient",
    "ShownClient": "Client",
    "Rule-Input": "NewPolicy",
    "Rule-Output": "Policy",
    "CountedRule": "CountedPolicy",
    "ExplainedRule": "ExplainedPolicy",
}
_POLICY_EXAMPLE = {
    "route": "/api/videos",
    "method": "GET",
    "identifier_type": "session_id",
    "algorithm": "sliding_window",
    "limit": 100,
    "window_seconds": 60,
}
_EXAMPLES: dict[str, list[Any]] = {
    "Client": [{"id": "mon-service", "name": "Mon Service Backend", "rules": [_POLICY_EXAMPLE]}],
    "Rule-Input": [_POLICY_EXAMPLE],
}
_RULES = ("Rule-Input", "Rule-Output", "CountedRule")
#: What the domain says in code, for the names that the schemas of its types get.
_DOMAIN: dict[str, Schema] = {
    "Client": {"id": {"pattern": _ID}},
    "ShownClient": {"id": {"pattern": _ID}},
    **dict.fromkeys(_RULES, _RULE),
    "Refusal": _REFUSAL,
}


class _Exact(GenerateJsonSchema):
    def field_is_required(self, field: Any, total: bool) -> bool:
        return self.mode == "serialization" or super().field_is_required(field, total)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        """What is written has no defaults."""
        written = self.mode == "serialization"
        return self.generate_inner(schema["schema"]) if written else super().default_schema(schema)


class Schemas:
    """The schemas of all bodies, each once: `read` are those of requests, `written` those of answers."""

    def __init__(self, read: Collection[Any], written: Collection[Any]) -> None:
        kinds: list[tuple[Any, Direction]] = [(kind, "validation") for kind in read]
        kinds += [(kind, "serialization") for kind in written]
        made, all_ = TypeAdapter.json_schemas(
            [(kind, mode, TypeAdapter(kind)) for kind, mode in kinds],
            ref_template=_PLACE + "{model}",
            schema_generator=_Exact,
        )
        self._made: dict[Any, Schema] = {key: _renamed(dict(schema)) for key, schema in made.items()}
        self.components: dict[str, Schema] = {
            _NAMES.get(name, name): _renamed(_completed(name, schema))
            for name, schema in all_.get("$defs", {}).items()
        }

    def read(self, kind: Any) -> Schema:
        return self._made[kind, "validation"]

    def written(self, kind: Any) -> Schema:
        return self._made[kind, "serialization"]

    def named(self, kind: Any) -> Schema:
        """One whose id may be left out."""
        whole = self._component(kind)
        return whole | {"required": [name for name in whole["required"] if name != "id"]}

    def patch(self, kind: Any) -> Schema:
        """A merge patch (RFC 7396): any part of it; null stands for the default, or for no such key."""
        whole = self._component(kind)["properties"]
        properties = {name: _patched(name, schema) for name, schema in whole.items()}
        return {"type": "object", "properties": properties, "additionalProperties": {"type": "null"}}

    def _component(self, kind: Any) -> Schema:
        return self.components[self.read(kind)["$ref"].removeprefix(_PLACE)]


def _renamed(schema: Any) -> Any:
    """References by the names that users know."""
    if isinstance(schema, list):
        return [_renamed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    place = str(schema.get("$ref", "")).removeprefix(_PLACE)
    here = {"$ref": _PLACE + _NAMES[place]} if place in _NAMES else {}
    return {name: _renamed(value) for name, value in schema.items()} | here


def _completed(name: str, schema: Schema) -> Schema:
    """Closed, and with what the domain checks in code; descriptions without what Python raises."""
    if "description" in schema:
        schema["description"] = schema["description"].partition("Raises `InvalidValue`")[0].strip()
    schema.pop("title", None)
    if "properties" not in schema:
        return schema
    schema.setdefault("additionalProperties", False)
    for field, more in _DOMAIN.get(name, {}).items():
        schema["properties"][field] |= more
    if name in _EXAMPLES:
        schema["examples"] = _EXAMPLES[name]
    return schema | (_COUNTING if name in _RULES else {})


def _patched(name: str, schema: Schema) -> Schema:
    if name == "id":
        return schema
    schema = {key: value for key, value in schema.items() if key != "default"}
    if isinstance(entries := schema.get("additionalProperties"), dict):
        schema |= {"additionalProperties": {"anyOf": [entries, {"type": "null"}]}}
    return {"anyOf": [schema, {"type": "null"}]}
