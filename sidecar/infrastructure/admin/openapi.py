"""The OpenAPI document of the table of routes: what is served, and nothing else."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from sidecar import __version__
from sidecar.application.user_rates import MAX_USER
from sidecar.infrastructure.admin.access import DOCS_PATH, OPEN_PATHS, SHELL_PATHS
from sidecar.infrastructure.admin.bodies import Invalid, Problem
from sidecar.infrastructure.admin.schemas import Schemas
from sidecar.infrastructure.admin.table import Body, Operation, Parameter, Reply, Schema, Tag
from sidecar.infrastructure.problem import CONTENT_TYPE

MERGE_PATCH = "application/merge-patch+json"
_ID = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}
_PATH_PARAMETERS = {
    "client_id": Parameter("client_id", _ID, "The id of a client.", "path"),
    "policy_id": Parameter("policy_id", _ID, "The id of one of its policies.", "path"),
    "user_id": Parameter(
        "user_id", {"type": "integer", "minimum": 1, "maximum": MAX_USER}, "As in X-User-Id.", "path"
    ),
    "file": Parameter(
        "file",
        {"enum": sorted(path.removeprefix(f"{DOCS_PATH}/") for path in SHELL_PATHS - {DOCS_PATH})},
        "Which.",
        "path",
    ),
}
_ERRORS = {
    400: "No JSON object, or something else that cannot be read.",
    403: "No valid key or token, one that may only read, or none is configured. With `Retry-After`: too many "
    "failures from this address; a valid key or token still passes.",
    404: "There is no such thing.",
    405: "This path takes other methods.",
    409: "It contradicts what is there; `detail` says how.",
    412: "It is no longer what `If-Match` names; nothing was changed.",
    413: "The body has more than 1 MiB.",
    417: "An `Expect` other than `100-continue`.",
    422: "Wrong fields; `errors` names each.",
    503: "The store is away.",
}
#: The name of each in the document.
_ERROR = "Error{}"
_ERROR_HEADERS = {403: ("Retry-After",), 405: ("Allow",)}
_HEADERS = {
    "Allow": ("string", "The methods that the path takes."),
    "ETag": ("string", "Names this state of the client, for `If-Match`."),
    "Location": ("string", "Where it is now."),
    "Retry-After": ("integer", "Seconds to wait."),
    "X-RateLimit-Limit": ("integer", "What may be used at once."),
    "X-RateLimit-Remaining": ("integer", "What is left of it."),
    "X-RateLimit-Reset": ("integer", "Seconds until more remains; with `response.reset: epoch` that moment."),
    "X-RateLimit-Degraded": ("string", "Decided without the store: `storage_unavailable`."),
    "X-RateLimit-Rule": ("string", "The policy that refused."),
    "X-RateLimit-Status": ("integer", "What the proxy has to make of the 403."),
    "RateLimit-Policy": ("string", "With `response.ietf_headers`: all policies."),
    "RateLimit": ("string", "With `response.ietf_headers`: what is left of each."),
}
_SOMETIMES = {name for name in _HEADERS if "RateLimit" in name} | {"Retry-After"}
_KEYS = {
    "AdminKey": {"type": "apiKey", "in": "header", "name": "X-Admin-Key"},
    "Token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
}
_DATA_SERVER = {
    "url": "http://{authz}",
    "description": "The data port. Pages of the admin port may not send requests to it.",
    "variables": {"authz": {"default": "127.0.0.1:8000", "description": "As `listen.authz` has it."}},
}
_HERE = {"url": "/", "description": "The admin port."}
_ABOUT = (
    "Clients, policies and counters of a rate-limiting sidecar. Errors are `application/problem+json`. "
    "The admin port answers HEAD wherever it does GET. A path of the data port says so by its `servers`."
)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    schemas = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, _path_item(operation))
        item[operation.method.lower()] = _operation(operation, schemas)
    for made in (operation for operation in operations if 201 in operation.answers):
        paths[made.path][made.method.lower()]["responses"]["201"]["links"] = _links(made, operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rate-limiting sidecar", "version": __version__, "description": _ABOUT},
        "servers": [_HERE],
        "tags": [{"name": tag} for tag in Tag],
        "paths": paths,
        "security": [{name: []} for name in _KEYS],
        "components": _components(schemas),
    }


def _components(schemas: Schemas) -> dict[str, Any]:
    return {
        "schemas": schemas.components,
        "securitySchemes": _KEYS,
        "headers": {name: _header(name) for name in _HEADERS},
        "responses": {_ERROR.format(status): _error(status, schemas) for status in _ERRORS},
    }


def _schemas(operations: Iterable[Operation]) -> Schemas:
    """Each type once, in the order of the table."""
    read = {operation.body.kind: None for operation in operations if operation.body}
    answers = [answer.body for operation in operations for answer in operation.answers.values()]
    return Schemas(read, dict.fromkeys([*filter(None, answers), Problem, Invalid]))


def _path_item(operation: Operation) -> dict[str, Any]:
    if operation.tag is Tag.DATA:
        return {"servers": [_DATA_SERVER]}
    return {"servers": [_HERE, _DATA_SERVER]} if operation.path in ("/health", "/ready") else {}


def _operation(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    answers = {str(status): _reply(answer, schemas) for status, answer in operation.answers.items()}
    for status in _errors(operation):
        answers.setdefault(str(status), {"$ref": f"#/components/responses/{_ERROR.format(status)}"})
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": dict(sorted(answers.items())),
    }
    if parameters := [*_path_parameters(operation.path), *operation.parameters]:
        described["parameters"] = [_parameter(each) for each in parameters]
    if operation.body:
        described["requestBody"] = {"required": True, "content": _content(operation.body, schemas)}
    if not _keyed(operation):
        described["security"] = []
    return described


def _errors(operation: Operation) -> list[int]:
    """Its own, and those that follow from what it is."""
    errors = {*operation.errors} | (set() if operation.any_method else {405})
    if operation.body:
        errors |= {400, 413}
    if operation.tag is not Tag.DATA:
        errors.add(417)
        errors |= set() if operation.query is None else {422}
    if _keyed(operation):
        errors.add(403)
    return sorted(errors)


def _keyed(operation: Operation) -> bool:
    in_the_open = operation.path in OPEN_PATHS or operation.path.startswith(DOCS_PATH)
    return operation.tag is not Tag.DATA and not in_the_open


def _operation_id(operation: Operation) -> str:
    return "_".join([operation.method.lower(), *re.findall(r"[A-Za-z0-9_]+", operation.path)])


def _path_parameters(path: str) -> list[Parameter]:
    return [_PATH_PARAMETERS[name] for name in re.findall(r"\{(\w+)\}", path)]


def _parameter(each: Parameter) -> Schema:
    required = each.required or each.where == "path"
    return {
        "name": each.name,
        "in": each.where,
        "required": required,
        "description": each.description,
        "schema": each.schema,
    }


def _links(made: Operation, operations: Iterable[Operation]) -> Schema:
    """What may be done with the thing that was made."""
    known = re.findall(r"\{(\w+)\}", made.path)
    links: Schema = {}
    for other in operations:
        new = [name for name in re.findall(r"\{(\w+)\}", other.path) if name not in known]
        if other.path.startswith(f"{made.path}/{{") and len(new) == 1:
            parameters = {name: f"$request.path.{name}" for name in known} | {new[0]: "$response.body#/id"}
            name = _operation_id(other)
            links[name] = {"operationId": name, "parameters": parameters}
    return links


def _content(body: Body, schemas: Schemas) -> Schema:
    match body.form:
        case "whole":
            return {"application/json": {"schema": schemas.read(body.kind)}}
        case "named":
            return {"application/json": {"schema": schemas.named(body.kind)}}
        case "patch":
            patch = {"schema": schemas.patch(body.kind)}
            return {MERGE_PATCH: patch, "application/json": patch}


def _reply(answer: Reply, schemas: Schemas) -> Schema:
    described: Schema = {"description": answer.description}
    if answer.headers:
        described["headers"] = _headers(answer.headers)
    if answer.body:
        content_type = answer.content_type or "application/json"
        described["content"] = {content_type: {"schema": schemas.written(answer.body)}}
    elif answer.content_type:
        described["content"] = {answer.content_type: {"schema": {"type": "string"}}}
    if answer.or_problem:
        described.setdefault("content", {})[CONTENT_TYPE] = {"schema": schemas.written(Problem)}
    return described


def _error(status: int, schemas: Schemas) -> Schema:
    body = Invalid if status == 422 else Problem
    return _reply(Reply(_ERRORS[status], body, CONTENT_TYPE, _ERROR_HEADERS.get(status, ())), schemas)


def _headers(names: Iterable[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(name: str) -> Schema:
    kind, description = _HEADERS[name]
    return {"description": description, "required": name not in _SOMETIMES, "schema": {"type": kind}}
