"""The JSON Schema of topology files, made from the structs that read them. Editors complete and check with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tampu.broker.topology.sections import Section
from tampu.model.config import DURATIONS

_TEXT_TOO = {*DURATIONS, "rate", "group_rate", "backoff"}
"""Settings of queues that are numbers, and take a text such as ``5m`` or ``100/s`` too; for a backoff also a list."""


def json_schema(sections: Iterable[Section]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a topology file."""
    structs = {section.name: section.schema() for section in sections}
    references, definitions = msgspec.json.schema_components(
        [struct for struct, _ in structs.values()], ref_template="#/$defs/{name}"
    )
    for struct, hidden in structs.values():
        own: dict[str, Any] = definitions[struct.__name__]
        own["properties"] = {name: _field(name, value) for name, value in own["properties"].items()
                             if name not in hidden}  # fmt: skip
        own["required"] = [name for name in own.get("required", ()) if name not in hidden]
        own["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Topology of a tampu store",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"type": ["object", "null"], "additionalProperties": {"anyOf": [reference, {"type": "null"}]}}
            for name, reference in zip(structs, references, strict=True)
        },
        "$defs": definitions,
    }


def _field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if name not in _TEXT_TOO:
        return schema
    takes = ["number", "string", "null"] + (["array"] if name == "backoff" else [])
    others = [one for one in schema.get("anyOf", ()) if "$ref" in one]
    return {"anyOf": [{"type": takes}, *others], "default": None}
