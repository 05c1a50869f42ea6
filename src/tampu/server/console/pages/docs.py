"""The HTTP API: each route with its body, its answer and a call to copy. Made from the OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from tampu.server.console.page import Page, View

page = Page("docs", "API", group="5 Help", needs=("view", "publish", "consume", "operate", "review", "admin"))
_DEEPEST = 5
_VALUES = {"string": "text", "integer": 1, "number": 1.0, "boolean": True}
_METHODS = ("get", "post", "put", "patch", "delete")


@page.show("/docs")
async def docs(view: View) -> Response:
    document: dict[str, Any] = await view.read(view.request.scope["app"].openapi)
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                one = _operation(document, path, method, operations[method])
                groups.setdefault(one["tag"], []).append(one)
    return await view.html("docs.html", groups=groups, snippets=SNIPPETS)


def _operation(document: dict[str, Any], path: str, method: str, found: dict[str, Any]) -> dict[str, Any]:
    body = found.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = next(
        (
            reply["content"]["application/json"]["schema"]
            for code, reply in found["responses"].items()
            if code.startswith("2") and "application/json" in reply.get("content", {})
        ),
        None,
    )
    example = None if body is None else _example(document, body, 0)
    return {
        "id": found.get("operationId", f"{method}{path}"),
        "tag": (found.get("tags") or ["other"])[0],
        "method": method.upper(),
        "path": path,
        "about": found.get("description", ""),
        "parameters": found.get("parameters", []),
        "example": example,
        "answer": None if answer is None else _example(document, answer, 0),
    }


def _example(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """A small value of this shape."""
    schema = _resolved(document, schema)
    if depth > _DEEPEST:
        return {}
    if schema.get("default") not in (None, {}, []):
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        wanted = schema.get("required") or list(properties)[:3]
        return {name: _example(document, properties.get(name, {}), depth + 1) for name in wanted}
    if kind == "array":
        return [_example(document, schema["items"], depth + 1)] if schema.get("items") else []
    return _VALUES.get(str(kind), {"to": "ada@example.org"})


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema behind references and choices."""
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            continue
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not choices:
            return schema
        schema = next((one for one in choices if one.get("type") != "null"), {})


SNIPPETS = {
    "curl": """curl -H "Authorization: Bearer $TAMPU_TOKEN" -H "Content-Type: application/json" \\
     -d '{"to": "ada@example.org"}' "$TAMPU_URL/v1/queues/emails/messages?type=send"
""",
    "Python": """import os
import tampu

with tampu.open(os.environ["TAMPU_URL"], token=os.environ["TAMPU_TOKEN"]) as store:
    store.publish("emails", {"to": "ada@example.org"}, type="send")
""",
    "JavaScript": """const answer = await fetch(`${process.env.TAMPU_URL}/v1/queues/emails/messages?type=send`, {
  method: "POST",
  headers: { authorization: `Bearer ${process.env.TAMPU_TOKEN}`, "content-type": "application/json" },
  body: JSON.stringify({ to: "ada@example.org" }),
});
if (!answer.ok) throw new Error((await answer.json()).detail);
""",
    "Go": """body := strings.NewReader(`{"to": "ada@example.org"}`)
request, _ := http.NewRequest("POST", os.Getenv("TAMPU_URL")+"/v1/queues/emails/messages?type=send", body)
request.Header.Set("Authorization", "Bearer "+os.Getenv("TAMPU_TOKEN"))
request.Header.Set("Content-Type", "application/json")
answer, err := http.DefaultClient.Do(request)
""",
}
