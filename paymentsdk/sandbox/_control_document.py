"""The OpenAPI 3.1 document of the control API and of notifications, made from the commands and the templates."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paymentsdk._version import __version__
from paymentsdk._webhook_signatures import STANDARD
from paymentsdk.sandbox._commands import COMMANDS, Command
from paymentsdk.sandbox._control_forms import Rejection
from paymentsdk.sandbox._openapi import TEXT, Schema, schema_of, schemas_of
from paymentsdk.sandbox._signers import TEMPLATES, Template
from paymentsdk.sandbox._wire import TOO_LARGE

_REJECTIONS = {
    400: "A value cannot be used; the message names it",
    403: "The request comes from a page of another site",
    404: "There is nothing of this id or name",
    413: TOO_LARGE[0].upper() + TOO_LARGE[1:],
}
_EVENTS: Schema = {
    "operationId": "events",
    "tags": ["sandbox"],
    "summary": "Stream every event from now on, as server-sent events.",
    "responses": {"200": {"description": "Events.", "content": {"text/event-stream": {"schema": TEXT}}}},
}


def control_document(base_url: str, prefix: str) -> Mapping[str, object]:
    """Return the document of the control API of a sandbox at *base_url*, whose paths begin with *prefix*."""
    kinds = [kind for command in COMMANDS.values() for kind in (command.body, command.result)]
    schemas = schemas_of([*kinds, Rejection], decimal_strings=True)
    paths: dict[str, Schema] = {prefix + "events": {"get": _EVENTS}}
    for (method, path), command in COMMANDS.items():
        paths.setdefault(prefix + path, {})[method.lower()] = _operation(path, command, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Control API of the sandbox",
            "version": __version__,
            "description": "What a test does to the platform on localhost. No real platform has any of it.",
        },
        "servers": [{"url": base_url}],
        "security": [],
        "paths": paths,
        "webhooks": {name: {"post": _notification(name, template)} for name, template in TEMPLATES.items()},
        "components": {"schemas": schemas},
    }


def _operation(path: str, command: Command, schemas: Mapping[str, Schema]) -> Schema:
    names = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in re.findall(r"{(\w+)}", path)]
    number = {"type": "integer", "format": "int64"}
    numbers = [{"name": name, "in": "query", "schema": number} for name in command.parameters]
    content = {command.media: {"schema": schema_of(command.result, decimal_strings=True)}}
    described: Schema = {
        "operationId": command.name,
        "tags": ["sandbox"],
        "summary": command.summary,
        "parameters": [*names, *numbers],
        "responses": {"200": {"description": "Done.", "content": content}, **_rejections()},
    }
    if command.body is not None:
        schema = schema_of(command.body, decimal_strings=True)
        media = "application/octet-stream" if command.body is bytes else "application/json"
        needed = bool(schemas.get(schema.get("$ref", "").rpartition("/")[2], {}).get("required"))
        described["requestBody"] = {"required": needed, "content": {media: {"schema": schema}}}
    return described


def _rejections() -> Schema:
    content = {"application/json": {"schema": schema_of(Rejection, decimal_strings=True)}}
    return {str(status): {"description": text, "content": content} for status, text in _REJECTIONS.items()}


def _notification(name: str, template: Template) -> Schema:
    """Return the description of a notification with *template* and the signer `standard`."""
    headers = [{"name": header, "in": "header", "schema": TEXT} for header in STANDARD]
    body = {template.content_type: {"schema": {"type": "object", "examples": [template.body]}}}
    return {
        "summary": f"A notification with the template `{name}`. Its headers are those of the signer `standard`.",
        "x-beyond-contract": True,
        "parameters": headers,
        "requestBody": {"required": True, "content": body},
        "responses": {"2XX": {"description": "Delivered."}, "410": {"description": "Send nothing more here."}},
    }
