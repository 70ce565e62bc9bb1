"""The OpenAPI 3.1 document of the platform, made from the operations and Structs of the client."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect as types_of

from paymentsdk import beyond
from paymentsdk._codec.type_walk import alternatives
from paymentsdk._paging.cursor import LARGEST_OFFSET
from paymentsdk._texts import texts
from paymentsdk._version import __version__
from paymentsdk.resources import OPERATIONS
from paymentsdk.resources.common import DAY_SCHEMA, RequestStruct
from paymentsdk.sandbox._handlers import SCHEMAS, required
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._wire import TOO_LARGE, AnyOperation, media_type, structs_in

#: Any JSON. msgspec makes these values and this module writes them out, so that their types are not checked.
JSON: TypeAlias = Any
Schema: TypeAlias = dict[str, JSON]


_REF = "#/components/schemas/{name}"
#: The schemas of amounts, by whether they are strings and whether they must be above zero.
_AMOUNTS: Mapping[tuple[bool, bool], Schema] = {
    (True, False): {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{2})?$", "examples": ["24.90"]},
    (True, True): {"type": "string", "pattern": r"^(?!0+(\.00)?$)[0-9]{1,18}(\.[0-9]{2})?$", "examples": ["24.90"]},
    # No multipleOf for cents: validators that use floats would reject 19.99.
    (False, False): {"type": "number", "minimum": 0, "exclusiveMaximum": 10**18, "examples": [24.9]},
    (False, True): {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10**18, "examples": [24.9]},
}
TEXT: Schema = {"type": "string"}


def _list(required: list[str], **members: Schema) -> Schema:
    return {"type": "array", "items": {"type": "object", "properties": members, "required": required}}


_ERROR: Schema = {
    "type": "object",
    "description": "A rejection. Its shape depends on the interface; see the guide to errors.",
    "properties": {
        "errors": {
            **_list(["code", "message"], code=TEXT, message=TEXT, details={"type": "array", "items": TEXT}),
            "minItems": 1,
        },
        "message": TEXT,
        "code": TEXT,
        "error": TEXT,
        "status": {"type": "integer"},
        "cause": _list(
            ["code", "description"],
            code={"type": ["string", "integer"]},
            description=TEXT,
            data={"type": ["string", "null"]},
        ),
    },
    "anyOf": [{"required": ["errors"]}, {"required": ["message"]}],
}
_REQUEST_ID: Schema = {"X-Request-Id": {"description": "The name of the request.", "required": True, "schema": TEXT}}
#: Rejections of all operations, in addition to their own.
_ALWAYS = {
    413: TOO_LARGE[0].upper() + TOO_LARGE[1:],
    429: "Too many requests: a fault rule says so",
    500: "An internal error: a fault rule says so",
}
_OF_AUTHENTICATED = {
    401: "The access token is missing, unknown, revoked or expired",
    403: "The scope of the token does not allow it",
}
_OF_KEYED = {
    409: "The idempotency key went with another request, or is in flight",
    423: "The idempotency key is in flight (policy `concurrent_twin`)",
}


def document(
    base_url: str, policies: Policies, operations: Mapping[str, AnyOperation] = OPERATIONS
) -> Mapping[str, object]:
    """Return the document of a platform at *base_url* with *policies* and *operations*."""
    paths: dict[str, Schema] = {}
    for operation in operations.values():
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, policies)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Payments platform (sandbox)",
            "version": __version__,
            "description": "The platform on localhost, for development and tests. It moves no money.",
        },
        "servers": [{"url": base_url}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {**_schemas(policies, operations), "Error": _ERROR},
        },
    }


def _space(operation: AnyOperation) -> str:
    """Return the prefix of the names of its schemas, since another program may have its own `Order`."""
    known = operation.name in OPERATIONS or operation.name in beyond.OPERATIONS
    return "" if known else f"{operation.name.partition('.')[0]}."


def _schemas(policies: Policies, operations: Mapping[str, AnyOperation]) -> Schema:
    """Return the schemas of all Structs, with amounts in the form that they have on the wire."""
    schemas: Schema = {}
    # Operations with number amounts come last: a Struct that has both forms is described with numbers.
    for operation in sorted(operations.values(), key=lambda item: not item.decimal_strings):
        types = [operation.body, operation.result]
        schemas |= schemas_of(types, decimal_strings=operation.decimal_strings, space=_space(operation))
    for name, members in required(policies).items():
        schemas[name]["required"] = [*members]
        for member in members:
            # Null means a missing member, and is invalid for a required one.
            schema = schemas[name]["properties"][member]
            schema["anyOf"] = [item for item in schema["anyOf"] if item != {"type": "null"}]
    return schemas


def schemas_of(types: Iterable[JSON], *, decimal_strings: bool, space: str = "") -> Schema:
    """Return the schemas of the Structs in *types*, by their names with the prefix *space*."""
    types = [kind for kind in types if kind is not None and kind is not bytes]
    template = f"#/components/schemas/{space}{{name}}"
    _, components = msgspec.json.schema_components(types, schema_hook=_anything, ref_template=template)
    schemas = {name: finished(schema, decimal_strings=decimal_strings) for name, schema in components.items()}
    for struct in structs_in(types):
        if not struct.array_like:
            _complete(schemas[struct.cls.__name__], struct)
    return {space + name: schema for name, schema in schemas.items()}


def schema_of(kind: JSON, *, decimal_strings: bool, space: str = "") -> Schema:
    """Return the schema of a body of *kind*, or a reference to the schema in `schemas_of`."""
    if kind is bytes:
        return {"type": "string", "format": "binary"}
    template = f"#/components/schemas/{space}{{name}}"
    [schema], _ = msgspec.json.schema_components([kind], schema_hook=_anything, ref_template=template)
    described: Schema = finished(schema, decimal_strings=decimal_strings)
    return described


def _anything(kind: type) -> Schema:
    """Return the schema of a value that may be any JSON."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any JSON."}


def _complete(schema: Schema, struct: types_of.StructType) -> None:
    """Add to the *schema* of a Struct the rules that msgspec does not know, and the texts from the code."""
    cls, members = struct.cls, schema["properties"]
    for member in struct.fields:
        name = member.encode_name
        if any(part.marks.get("day") for part in alternatives(member.type)):
            members[name] = {"anyOf": [DAY_SCHEMA, {"type": "null"}]}
        if rule := _rule(cls.__name__, name):
            members[name] = {"anyOf": [rule, {"type": "null"}]}
        if member.default_factory is not msgspec.NODEFAULT and issubclass(cls, RequestStruct):
            schema["required"].append(name)  # Required by the contract; the SDK fills it in.
    # Not `getdoc`: under `python -OO` it would return msgspec's text about the base class.
    schema["description"] = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    for base in reversed(cls.__mro__[: cls.__mro__.index(msgspec.Struct)]):  # Texts of a base class apply, too.
        for name, text in texts(base.__module__).get(base.__name__, {}).items():
            if "$ref" not in members.get(name, {"$ref": ""}):
                members[name]["description"] = text


def _rule(of: str, name: str) -> Schema | None:
    """Return the sandbox's own rule for a parameter of an operation or a member of a Struct; `None` without one."""
    rule = SCHEMAS.get((of, name))
    return None if rule is None else finished(dict(rule))


def finished(schema: JSON, *, decimal_strings: bool = False) -> JSON:
    """Return msgspec's *schema* in the form of OpenAPI: with amounts and ECMA patterns, without defaults."""
    if isinstance(schema, list):
        return [finished(item, decimal_strings=decimal_strings) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        return dict(_AMOUNTS[decimal_strings, "exclusiveMinimum" in schema])
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # Generators reject a default next to it.
    if "title" in schema and "enum" in schema:
        return _open_enum(schema)
    if schema.get("type") == "integer":
        schema = {**schema, "format": "int64"}
    described = {
        name: finished(value, decimal_strings=decimal_strings)
        for name, value in schema.items()
        # A generator may require members with defaults. A member itself may be called "default".
        if name != "default" or (isinstance(value, dict) and value)
    }
    if "pattern" in described:
        # Without comments, and with ECMA's anchors.
        pattern = re.sub(r"\(\?#[^)]*\)", "", described["pattern"])
        described["pattern"] = pattern.replace(r"\A", "^").replace(r"\Z", "$")
    return described


def _open_enum(schema: Schema) -> Schema:
    """Return the schema of an `OpenEnum`: any text, since a generated client must not reject future values."""
    values = schema["enum"]
    known = f"Known values: {', '.join(f'`{value}`' for value in values)}. Others may come."
    description = f"{schema.get('description', '').partition(chr(10) * 2)[0]} {known}".lstrip()
    return {"title": schema["title"], "type": "string", "description": description, "x-extensible-enum": values}


def _operation(operation: AnyOperation, policies: Policies) -> Schema:
    described: Schema = {
        "operationId": operation.name,
        "tags": [operation.name.split(".")[0]],
        "summary": operation.summary,
        "description": f"Section {operation.section} of the contract." if operation.section else operation.summary,
        "parameters": [*_parameters(operation, policies)],
        "responses": {str(operation.status): _success(operation), **_rejections(operation)},
    }
    if operation.name in beyond.OPERATIONS:
        described["x-beyond-contract"] = True
    if not operation.authenticated:
        described["security"] = []
    if operation.body is not None:
        content = _content(operation, operation.body, operation.content_type)
        if operation.example is not None:
            content[operation.content_type]["example"] = msgspec.to_builtins(operation.example)
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _parameters(operation: AnyOperation, policies: Policies) -> Iterator[Schema]:
    """Yield the parameters of the path, the query and the headers."""
    for name in operation.path_names:
        schema = _rule(operation.name, name) or {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name, schema in sorted(_filters(operation).items()):
        schema_or_empty = {"anyOf": [_rule(operation.name, name) or schema, {"const": ""}]}
        yield {"name": name, "in": "query", "description": "Empty counts as not given.", "schema": schema_or_empty}
    for name, meaning in operation.headers.items():
        yield {"name": name, "in": "header", "description": meaning, "schema": TEXT}
    if operation.keyed:
        key = {"type": "string", "minLength": 1, "maxLength": policies.max_key_length, "pattern": "^[!-~]+$"}
        yield {"name": operation.key_header, "in": "header", "required": True, "schema": key}


def _filters(operation: AnyOperation) -> Schema:
    """Return the schemas of the filters. Enums are inlined, since the document's components are only for bodies."""
    if operation.query is None:
        return {}
    _, components = msgspec.json.schema_components([operation.query], ref_template=_REF)
    placed = {_REF.format(name=name): schema for name, schema in components.items()}
    properties = finished(components[operation.query.__name__])["properties"]
    # Offsets and limits have a maximum.
    ends = {"integer": {"maximum": LARGEST_OFFSET}}
    return {
        name: placed.get(filter_schema.get("$ref"), filter_schema) | ends.get(filter_schema.get("type"), {})
        for name, filter_schema in properties.items()
    }


def _success(operation: AnyOperation) -> Schema:
    success: Schema = {"description": HTTPStatus(operation.status).phrase, "headers": _REQUEST_ID}
    if operation.status != HTTPStatus.NO_CONTENT:
        success["content"] = _content(operation, operation.result, media_type(operation))
    return success


def _rejections(operation: AnyOperation) -> Schema:
    """Return the responses to rejected requests: the documented codes, and those that are always possible."""
    general = _ALWAYS | (_OF_AUTHENTICATED if operation.authenticated else {}) | (_OF_KEYED if operation.keyed else {})
    lines: dict[int, list[str]] = {}
    for error in operation.errors:
        lines.setdefault(error.status, []).append(f"- `{error.code}`: {error.meaning}")
    lines = {status: [text] for status, text in general.items()} | lines
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {
        str(status): {"description": "\n".join(texts), "headers": _REQUEST_ID, "content": content}
        for status, texts in sorted(lines.items())
    }


def _content(operation: AnyOperation, kind: type, media: str) -> Schema:
    schema = schema_of(kind, decimal_strings=operation.decimal_strings, space=_space(operation))
    return {media: {"schema": schema}}
