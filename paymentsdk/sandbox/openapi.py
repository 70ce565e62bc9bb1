"""The OpenAPI 3.1 document of the platform, made from the same operations and Structs that the client uses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from paymentsdk._core.operation import ErrorCode, Operation
from paymentsdk.resources import OPERATIONS

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
Schema: TypeAlias = dict[str, JSON]
AnyOperation: TypeAlias = Operation[object, object]

_REF = "#/components/schemas/{name}"
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_DECIMAL_STRING: Schema = {
    "type": "string",
    "format": "decimal",
    "pattern": r"^[0-9]{1,16}(\.[0-9]{2})?$",
    "example": "24.90",
}
_DECIMAL_NUMBER: Schema = {"type": "number", "minimum": 0, "example": 24.9}
_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$"}
_ERROR: Schema = {
    "type": "object",
    "description": "A refusal. Its shape depends on the interface; see the guide to errors.",
    "properties": {
        "errors": {"type": "array", "items": {"type": "object"}},
        "message": {"type": "string"},
        "error": {"type": "string"},
        "status": {"type": "integer"},
        "cause": {"type": "array", "items": {"type": "object"}},
    },
}


def document(base_url: str, version: str) -> Schema:
    """Return the document for a platform at *base_url*."""
    paths: dict[str, JSON] = {}
    for operation in OPERATIONS.values():
        methods = paths.setdefault(operation.path, {})
        if isinstance(methods, dict):
            methods[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Payments platform (sandbox)",
            "version": version,
            "description": "The platform on localhost, for development and tests. It moves no money.",
        },
        "servers": [{"url": base_url}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {**_schemas(), "Error": _ERROR},
        },
    }


def _schemas() -> Schema:
    """Describe every Struct, each with the form that its amounts have on the wire."""
    schemas: Schema = {}
    for decimal_strings in (True, False):
        types = [
            kind
            for operation in OPERATIONS.values()
            if operation.decimal_strings is decimal_strings
            for kind in (operation.body, operation.result)
            if kind is not None
        ]
        _, components = msgspec.json.schema_components(types, schema_hook=_free_form, ref_template=_REF)
        structs = {cls.__name__: cls for cls in _structs(types)}
        for name, schema in components.items():
            schemas[name] = _finished(schema, _DECIMAL_STRING if decimal_strings else _DECIMAL_NUMBER)
            _describe(schemas[name], inspect.getdoc(structs[name]) if name in structs else None)
    # Required by the contract; the SDK fills it in.
    order = schemas["OrderRequest"]
    if isinstance(order, dict) and isinstance(order["required"], list):
        order["required"].append("type")
    return schemas


def _free_form(kind: type) -> Schema:
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(kind)


def _structs(types: Iterable[type]) -> Iterable[type]:
    """Yield *types* and every Struct inside them."""
    from msgspec import inspect as types_of  # noqa: PLC0415 - only the document needs it

    seen: set[type] = set()
    todo = [types_of.type_info(kind) for kind in types]
    while todo:
        match todo.pop():
            case types_of.StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                yield cls
                todo.extend(field.type for field in fields)
            case types_of.UnionType(types=inner):
                todo.extend(inner)
            case types_of.ListType(item_type=inner) | types_of.VarTupleType(item_type=inner):
                todo.append(inner)
            case types_of.Metadata(type=inner):
                todo.append(inner)
            case _:
                pass


def _finished(schema: JSON, amount: Schema) -> JSON:
    """Put msgspec's *schema* into the words of OpenAPI: amounts, patterns of ECMA, no defaults of null."""
    if isinstance(schema, list):
        return [_finished(one, amount) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        return dict(amount)
    finished = {
        name: _finished(value, amount) for name, value in schema.items() if (name, value) != ("default", None)
    }
    pattern = finished.get("pattern")
    if isinstance(pattern, str):
        finished["pattern"] = pattern.replace(r"\A", "^").replace(r"\Z", "$")
    return finished


def _describe(schema: JSON, doc: str | None) -> None:
    """Move what a docstring says of its attributes to the members that it speaks of."""
    if not isinstance(schema, dict) or not doc:
        return
    schema["description"] = doc.split("\n\n")[0].replace("\n", " ")
    members = schema.get("properties")
    for match in _ATTRIBUTE.finditer(doc):
        member = members.get(match[1]) if isinstance(members, dict) else None
        if isinstance(member, dict) and "$ref" not in member:
            member["description"] = " ".join(match[2].split())


def _operation(operation: AnyOperation) -> Schema:
    described: Schema = {
        "operationId": operation.name,
        "tags": [operation.name.split(".")[0]],
        "summary": operation.summary,
        "description": f"Section {operation.section} of the contract.",
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": {
            str(operation.status): _success(operation),
            **{str(status): _refusal(codes) for status, codes in _by_status(operation.errors).items()},
            "default": {"description": "Any other refusal", "content": _json({"$ref": _REF.format(name="Error")})},
        },
    }
    if not operation.authenticated:
        described["security"] = []
    if operation.body is not None:
        content = _json({"$ref": _REF.format(name=operation.body.__name__)}, operation.example)
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _path_parameters(operation: AnyOperation) -> list[JSON]:
    schema: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in operation.path_names]


def _query_parameters(operation: AnyOperation) -> list[JSON]:
    if operation.query is None:
        return []
    _, components = msgspec.json.schema_components([operation.query], ref_template=_REF)
    members = _finished(components[operation.query.__name__], _DECIMAL_NUMBER)
    properties = members.get("properties") if isinstance(members, dict) else None
    if not isinstance(properties, dict):
        return []
    return [{"name": name, "in": "query", "schema": schema} for name, schema in sorted(properties.items())]


def _headers(operation: AnyOperation) -> list[JSON]:
    if not operation.keyed:
        return []
    return [{"name": "X-Idempotency-Key", "in": "header", "required": True, "schema": _KEY}]


def _success(operation: AnyOperation) -> Schema:
    success: Schema = {
        "description": HTTPStatus(operation.status).phrase,
        "content": _json({"$ref": _REF.format(name=operation.result.__name__)}),
    }
    links = {
        other.name: _link(operation, other)
        for other in OPERATIONS.values()
        if len(other.path_names) == 1 and not operation.path_names and _parent(other.path) == _collection(operation)
    }
    if links:
        success["links"] = links
    return success


def _parent(path: str) -> str:
    return path.split("/{", maxsplit=1)[0]


def _collection(operation: AnyOperation) -> str:
    return operation.path.removesuffix("/search")


def _link(operation: AnyOperation, other: AnyOperation) -> JSON:
    """Say where in the answer of *operation* the id is that *other* takes."""
    where = "#/id" if operation.page is None else "#/results/0/id"
    return {"operationId": other.name, "parameters": {other.path_names[0]: f"$response.body{where}"}}


def _by_status(errors: Iterable[ErrorCode]) -> Mapping[int, list[ErrorCode]]:
    grouped: dict[int, list[ErrorCode]] = {}
    for error in errors:
        grouped.setdefault(error.status, []).append(error)
    return dict(sorted(grouped.items()))


def _refusal(codes: Iterable[ErrorCode]) -> Schema:
    lines = [f"- `{error.code}`: {error.meaning}" for error in codes]
    return {"description": "\n".join(lines), "content": _json({"$ref": _REF.format(name="Error")})}


def _json(schema: Schema, example: Mapping[str, object] | None = None) -> Schema:
    media: Schema = {"schema": schema}
    if example is not None:
        media["example"] = msgspec.to_builtins(example)
    return {"application/json": media}
