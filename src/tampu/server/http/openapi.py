"""The OpenAPI document, generated from the structs that read and write the bodies, so that both agree."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tampu.model.message import JSON, MSGPACK
from tampu.wire.problems import PROBLEM, Problem

_REF = "#/components/schemas/{name}"
_TEXTS = {
    400: "The request is malformed",
    401: "No key, or an invalid one",
    403: "The key may not do this",
    404: "No such message, queue, schedule or key in this tenant",
    405: "The route does not support this method",
    408: "The request did not arrive in time",
    409: "The state of the message or queue does not allow it",
    413: "Larger than the server or the queue accepts",
    415: "Neither JSON nor MessagePack",
    422: "The idempotency key was used with another body",
    429: "Over a rate limit, or the queue is full; retry after Retry-After",
    431: "The request headers are too large",
    500: "A bug in the server",
    503: "The store is unavailable",
    507: "The disk is full",
}
_ALWAYS = (400, 401, 403, 429, 431, 503)
_BODY = (408, 413, 415)
_HEADERS = {
    name: {"description": text, "schema": {"type": "integer"}}
    for name, text in (
        ("Retry-After", "Seconds to wait before a retry; missing if a retry would not help"),
        ("RateLimit-Limit", "Maximum number of messages at once"),
        ("RateLimit-Remaining", "Number of messages left"),
        ("RateLimit-Reset", "Seconds until the next message is accepted"),
    )
}
"""The headers of a 429."""
TYPES: dict[str, Any] = {"Problem": Problem}
"""Every struct that a route reads or writes, by name."""


def _schema(kind: Any) -> dict[str, Any]:
    TYPES[kind.__name__] = kind
    return {"$ref": _REF.format(name=kind.__name__)}


def _both(kind: Any, binary: Any = None) -> dict[str, Any]:
    return {JSON: {"schema": _schema(kind)}, MSGPACK: {"schema": _schema(binary or kind)}}


def doc(
    answer: Any = None,
    body: Any = None,
    *,
    binary: Any = None,
    more: tuple[int, ...] = (),
    status: int = 200,
    also: tuple[int, ...] = (),
    text: str = "Done",
) -> dict[str, Any]:
    """Arguments that describe a route to FastAPI: its body, its response (also with statuses ``also``), its errors."""
    problems = {*_ALWAYS, *more, *(_BODY if body is not None else ())}
    content = {PROBLEM: {"schema": _schema(Problem)}}
    responses: dict[int | str, Any] = {
        code: {"description": _TEXTS[code], "content": content} for code in sorted(problems)
    }
    responses[429]["headers"] = _HEADERS
    for code in (status, *also):
        responses[code] = {"description": text} | ({} if answer is None else {"content": _both(answer)})
    arguments: dict[str, Any] = {"responses": responses, "status_code": status}
    if body is not None:
        arguments["openapi_extra"] = {"requestBody": {"required": True, "content": _both(body, binary)}}
    return arguments


def describe(app: FastAPI, version: str) -> dict[str, Any]:
    if app.openapi_schema:
        return app.openapi_schema
    made = get_openapi(
        title="tampu",
        version=version,
        summary="A durable task queue over HTTP",
        routes=app.routes,
    )
    kinds = list(TYPES.values())
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    made.setdefault("components", {})["schemas"] = dict(sorted(components.items()))
    made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"key": []}]
    for path in made["paths"].values():
        for operation in path.values():
            _without_pydantic(operation["responses"])
    app.openapi_schema = made
    return made


def _without_pydantic(responses: dict[str, Any]) -> None:
    """Remove the framework's own responses for bad parameters; ours are problems."""
    for code, response in list(responses.items()):
        schema = response.get("content", {}).get(JSON, {}).get("schema", {})
        if schema.get("$ref", "").endswith("HTTPValidationError"):
            del responses[code]
