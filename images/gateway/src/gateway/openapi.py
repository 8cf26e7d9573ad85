"""The OpenAPI document: exactly the routes that exist, with what their requests may hold."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.routing import BaseRoute, Route

from gateway.dialects.anthropic import COUNT_PATH, MESSAGES_PATH
from gateway.dialects.anthropic_fields import COUNT_FIELDS, MESSAGES_FIELDS
from gateway.dialects.ollama import (
    GENERATE_FIELDS,
    GENERATE_PATH,
    OLLAMA_CHAT_FIELDS,
    OLLAMA_CHAT_PATH,
)
from gateway.dialects.ollama_models import SHOW, SHOW_FIELDS
from gateway.dialects.openai import CHAT_PATH, COMPLETIONS_PATH
from gateway.dialects.openai_fields import CHAT_FIELDS, COMPLETIONS_FIELDS
from gateway.dialects.tokenize import TOKENIZE_FIELDS, TOKENIZE_PATH
from gateway.fields import Fields

OPENAPI_PATH = "/openapi.json"

_BODIES: Mapping[str, Fields] = {
    CHAT_PATH: CHAT_FIELDS,
    COMPLETIONS_PATH: COMPLETIONS_FIELDS,
    TOKENIZE_PATH: TOKENIZE_FIELDS,
    MESSAGES_PATH: MESSAGES_FIELDS,
    COUNT_PATH: COUNT_FIELDS,
    OLLAMA_CHAT_PATH: OLLAMA_CHAT_FIELDS,
    GENERATE_PATH: GENERATE_FIELDS,
    SHOW.path: SHOW_FIELDS,
}
_STREAMED = {
    CHAT_PATH: "text/event-stream",
    COMPLETIONS_PATH: "text/event-stream",
    MESSAGES_PATH: "text/event-stream",
    OLLAMA_CHAT_PATH: "application/x-ndjson",
    GENERATE_PATH: "application/x-ndjson",
}
_WITHOUT_KEY = ("/healthz", "/readyz")
_PARAMETER = re.compile(r"{(\w+)}")


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(route.path, {})[method.lower()] = _operation(route.path)
    keys = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gateway", "version": "1"},
        "paths": paths,
        "components": {"securitySchemes": keys, "schemas": {"Error": {"type": "object"}}},
        "security": [{"bearer": []}, {"header": []}],
    }


def _operation(path: str) -> dict[str, Any]:
    contents = {"application/json": {"schema": {"type": "object"}}}
    if path in _STREAMED:
        contents[_STREAMED[path]] = {"schema": {}}
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "responses": {
            "200": {"description": "The answer", "content": contents},
            "default": {"description": "Why there is none", "content": refused},
        }
    }
    if parameters := _PARAMETER.findall(path):
        text = {"type": "string", "minLength": 1}
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": text} for name in parameters
        ]
    if path in _BODIES:
        content = {"application/json": {"schema": _BODIES[path].schema()}}
        operation["requestBody"] = {"required": True, "content": content}
    if path in _WITHOUT_KEY:
        operation["security"] = []
    return operation
