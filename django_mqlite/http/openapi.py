"""The OpenAPI document of the broker, generated from its routes and structs."""

from functools import cache
from inspect import getdoc
from typing import Any, get_type_hints

import msgspec

from .. import __version__
from . import wire
from .routes import RPCS
from .verbs import Rpc

DESCRIPTION = """\
A durable message queue in the database of a Django project.

Times are epoch milliseconds and durations are milliseconds, both integers; 0 means none.
Every field of a request may be absent or null, which is its zero value: 0, "", false or [].
Unknown fields and values of another type are refused.
Responses may get more fields in later versions.
"""


@cache
def document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(_document(), order="deterministic")


def _document() -> dict[str, Any]:
    kinds = {kind for rpc in RPCS.values() for kind in _kinds_of(rpc) if kind is not None}
    kinds |= {wire.ErrorBody, wire.DiscoveryCard}
    _, schemas = msgspec.json.schema_components(
        sorted(kinds, key=lambda kind: str(kind.__name__)),
        ref_template="#/components/schemas/{name}",
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "django-mqlite broker",
            "version": __version__,
            "description": DESCRIPTION,
        },
        "servers": [{"url": "."}],
        "security": [{"accessKey": []}],
        "tags": [{"name": name} for name in dict.fromkeys(_service_of(path) for path in RPCS)],
        "paths": {**_other_paths(), **{path: _rpc_path(rpc) for path, rpc in RPCS.items()}},
        "components": {
            "schemas": schemas,
            "responses": {
                "error": {"description": "The error.", "content": _json_content(wire.ErrorBody)}
            },
            "securitySchemes": {
                "accessKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The secret of an access key, or a root token.",
                }
            },
        },
    }


def _kinds_of(rpc: Rpc) -> tuple[Any, Any]:
    """Return the types of the request, None if it is ignored, and of the response."""
    hints = get_type_hints(rpc.run)
    request = hints["request"]
    return None if request is type(None) else request, hints["return"]


def _service_of(path: str) -> str:
    return path.split("/")[1]


def _rpc_path(rpc: Rpc) -> dict[str, Any]:
    request, response = _kinds_of(rpc)
    summary, _, details = str(getdoc(rpc.run)).partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": rpc.path.lstrip("/").replace("/", ".").replace(".", "_"),
        "tags": [_service_of(rpc.path)],
        "summary": summary,
        "description": f"{details}\n\nThe access key needs the right `{rpc.right}`.".lstrip(),
        "security": [{"accessKey": [rpc.right]}],
        "responses": {
            "200": {"description": "Success.", "content": _json_content(response)},
            "4XX": {"$ref": "#/components/responses/error"},
            "5XX": {"$ref": "#/components/responses/error"},
        },
    }
    if request is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(request)}
    return {"post": operation}


def _json_content(kind: Any) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"application/json": {"schema": reference}}


def _other_paths() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    anything = {"application/json": {"schema": {"type": "object"}}}
    return {
        "/": _get("getCard", "Describe the broker.", _json_content(wire.DiscoveryCard)),
        "/healthz": _get("getHealth", "Return `ok` if the broker runs.", text),
        "/openapi.json": _get("getOpenapi", "Return this document.", anything),
        "/metrics": _get("getMetrics", "Return the metrics for Prometheus.", text, "manage"),
    }


def _get(name: str, summary: str, content: Any, right: str | None = None) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "Success.", "content": content}}
    if right is not None:
        responses["4XX"] = {"$ref": "#/components/responses/error"}
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "security": [{"accessKey": [right]}] if right else [],
            "responses": responses,
        }
    }
