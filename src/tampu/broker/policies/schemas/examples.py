"""Examples: a small value that matches a schema, for forms and documents.

Values that the schema itself gives (`const`, `examples`, `default`, `enum`) come first; the rest is made by type. It is
checked by the validator before it is returned. For some schemas, such as those with a `pattern`, none can be made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tampu.broker.policies.schemas.validators import Validator, validator
from tampu.model.definitions import Schema
from tampu.model.errors import InvalidState

_MOST_DEPTH = 12
_MOST_VALUES = 2000
_MOST_LENGTH = 1000
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "time": "12:00:00Z", "duration": "P1D",
    "email": "ada@example.org", "uuid": "018f4e5a-0000-7000-8000-000000000000", "uri": "https://example.org/",
    "hostname": "example.org", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
}  # fmt: skip


def example(schema: Schema) -> Any:
    """A value that matches the schema; raises `InvalidState` if none can be made."""
    maker = _Maker(schema.schema)
    check = validator(schema)
    for value in maker.candidates(schema.schema):
        if check.accepts(value):
            return value
    raise InvalidState(
        f"no example can be made for schema {schema.name}", hint='give it one: "examples": [...] in the schema'
    )


class _Maker:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _MOST_VALUES

    def candidates(self, schema: Any, depth: int = 0) -> Iterator[Any]:
        """Values that may match, the best first."""
        self._left -= 1
        if depth > _MOST_DEPTH or self._left < 0 or schema is False:
            return
        if not isinstance(schema, dict):
            yield {}
            return
        if "const" in schema:
            yield schema["const"]
        for name in ("examples", "enum"):
            given = schema.get(name)
            yield from given[:20] if isinstance(given, list) else ()
        if "default" in schema:
            yield schema["default"]
        whole = self._merged(schema, depth)
        for name in ("anyOf", "oneOf"):
            ways = whole.get(name)
            if isinstance(ways, list):
                rest = {key: value for key, value in whole.items() if key != name}
                for way in ways[:20]:
                    if isinstance(way, dict):
                        yield from self.candidates(_both(rest, way), depth + 1)
        yield from self._typed(whole, depth)

    def _merged(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """The schema with what it refers to, and all parts of `allOf`."""
        found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        parts = [self._referred(schema["$ref"])] if isinstance(schema.get("$ref"), str) else []
        parts += schema["allOf"] if isinstance(schema.get("allOf"), list) else []
        for part in parts[:20]:
            if isinstance(part, dict) and depth < _MOST_DEPTH:
                found = _both(found, self._merged(part, depth + 1))
        return found

    def _referred(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _typed(self, schema: dict[str, Any], depth: int) -> Iterator[Any]:
        kinds = schema.get("type")
        named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else _guessed(schema)
        for kind in named:
            if kind == "object":
                yield self._object(schema, depth)
            elif kind == "array":
                yield self._array(schema, depth)
            elif kind == "string":
                yield _text(schema)
            elif kind in ("integer", "number"):
                yield from _numbers(schema, whole=kind == "integer")
            elif kind == "boolean":
                yield from (True, False)
            elif kind == "null":
                yield None

    def _first(self, schema: Any, depth: int) -> Any:
        """The first candidate that matches the part of the schema by itself, or the first of all."""
        first: Any = None
        whole = {**schema, "$defs": self._root.get("$defs", {}), "definitions": self._root.get("definitions", {})}
        check = Validator(whole)
        for at, value in enumerate(self.candidates(schema, depth)):
            if check.accepts(value):
                return value
            first = value if at == 0 else first
        return first

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [name for name in schema.get("required", ()) if isinstance(name, str)]
        optional = [name for name in properties if name not in required] if depth < 3 else []
        made: dict[str, Any] = {}
        for name in [*required, *optional][:200]:
            part = properties.get(name, schema.get("additionalProperties", True))
            if part is not False:
                value = self._first(part, depth + 1) if isinstance(part, dict) else "text"
                if name in required or value is not None:
                    made[name] = value
        for number in range(len(made), min(_bound(schema, "minProperties"), 100)):
            made[f"field{number}"] = self._first(schema.get("additionalProperties") or {}, depth + 1)
        return made

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        prefix = schema.get("prefixItems")
        made = [self._first(part, depth + 1) for part in prefix if isinstance(part, dict)] if prefix else []
        items = schema.get("items")
        least = max(_bound(schema, "minItems"), 1 if isinstance(items, dict) and depth < 3 else 0)
        most = _bound(schema, "maxItems", _MOST_LENGTH)
        for _ in range(len(made), min(least, most, 100)):
            made.append(self._first(items, depth + 1) if isinstance(items, dict) else len(made))
        return made


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A schema with the demands of two, as far as an example needs."""
    found = {**one, **other}
    for name in ("properties", "$defs"):
        if isinstance(one.get(name), dict) and isinstance(other.get(name), dict):
            found[name] = {**one[name], **other[name]}
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        found["required"] = [*one["required"], *other["required"]]
    return found


def _guessed(schema: dict[str, Any]) -> list[str]:
    """Types of a schema that names none."""
    if {"properties", "required", "additionalProperties", "minProperties"} & schema.keys():
        return ["object"]
    if {"items", "prefixItems", "minItems"} & schema.keys():
        return ["array"]
    if {"minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"} & schema.keys():
        return ["number"]
    return ["string", "object", "integer", "array", "boolean", "null"]


def _bound(schema: dict[str, Any], name: str, default: int = 0) -> int:
    value = schema.get(name)
    return int(value) if isinstance(value, int | float) and 0 <= value <= _MOST_LENGTH else default


def _text(schema: dict[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), "text")
    least, most = _bound(schema, "minLength"), _bound(schema, "maxLength", _MOST_LENGTH)
    return text.ljust(least, "x")[: max(most, least)]


def _numbers(schema: dict[str, Any], *, whole: bool) -> Iterator[float]:
    """Numbers at the limits and between them."""
    low, high = (schema.get(name) for name in ("minimum", "maximum"))
    above, below = (schema.get(name) for name in ("exclusiveMinimum", "exclusiveMaximum"))
    step = schema.get("multipleOf")
    limits = [one for one in (low, high, above, below) if isinstance(one, int | float) and abs(one) < 1e300]
    found: list[float] = [0, 1, *limits, *(one + 1 for one in limits), *(one - 1 for one in limits)]
    if len(limits) > 1:
        found.append(sum(limits) / len(limits))
    if isinstance(step, int | float) and 0 < step < 1e300:
        found += [math.ceil(one / step) * step for one in limits if abs(one / step) < 1e15]
        found += [math.floor(one / step) * step for one in limits if abs(one / step) < 1e15]
        found.append(step)
    for one in found:
        yield (math.ceil(one) if whole else int(one) if one == int(one) else one)
