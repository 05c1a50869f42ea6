"""The verbs of schemas: put, get, list, delete, and making examples."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.broker.core import Steps
from tampu.broker.policies.definitions import DefinitionVerbs, Kind, texts
from tampu.broker.policies.schemas.examples import example
from tampu.broker.policies.schemas.validators import covers, validator
from tampu.model.decoders import from_json
from tampu.model.definitions import Compatibility, Schema
from tampu.model.errors import InvalidConfig


class Schemas(Kind[Schema]):
    word = "schema"
    plural = "schemas"
    struct = Schema
    keeps_versions = True

    def check(self, definition: Schema) -> Schema:
        texts(definition.queues, "queues")
        texts(definition.types, "types")
        validator(definition)
        return definition

    def check_change(self, old: Schema, new: Schema) -> None:
        needs = new.compatibility
        if needs in ("backward", "full") and not covers(new, old):
            raise _incompatible(new, "accept everything that version", old)
        if needs in ("forward", "full") and not covers(old, new):
            raise _incompatible(new, "accept nothing else than version", old)

    def places(self, definition: Schema) -> tuple[str, ...]:
        return definition.queues or ("*",)


def _incompatible(new: Schema, what: str, old: Schema) -> InvalidConfig:
    return InvalidConfig(
        f"schema {new.name} must {what} {old.version} accepts, and that cannot be shown",
        field="schema",
        hint=f"its compatibility is {new.compatibility}; change less, use another name, or put it with none",
    )


SCHEMAS = Schemas()


class SchemaVerbs(DefinitionVerbs):
    def put_schema(
        self,
        name: str,
        schema: dict[str, Any] | str | bytes,
        *,
        queues: str | list[str] | tuple[str, ...] | None = None,
        types: str | list[str] | tuple[str, ...] | None = None,
        compatibility: Compatibility = "none",
    ) -> Steps[Schema]:
        """Payloads of these queues and types must match this JSON Schema; from now on, on every node within a second.

        ``queues`` and ``types`` are patterns, in which ``*`` matches any characters; without them it is for all. Each
        change is a new version. With ``compatibility`` a change is refused unless the new version accepts everything
        that the old one accepted (``backward``), nothing else (``forward``), or both (``full``).
        """
        if isinstance(schema, str | bytes):
            try:
                schema = from_json(dict[str, Any]).decode(schema)
            except msgspec.MsgspecError as error:
                raise InvalidConfig(f"not a JSON Schema: {error}", field="schema") from None
        fields = {
            "schema": schema,
            "queues": texts(queues, "queues"),
            "types": texts(types, "types"),
            "compatibility": compatibility,
        }
        return (yield from self.put_definition(SCHEMAS, SCHEMAS.made(name, fields)))

    def get_schema(self, name: str, version: int | None = None) -> Steps[Schema]:
        """A schema as it is now, or as it was in an earlier version."""
        return (yield from self.get_definition(SCHEMAS, name, version))

    def list_schemas(self) -> Steps[list[Schema]]:
        """All schemas, by name."""
        return (yield from self.list_definitions(SCHEMAS))

    def delete_schema(self, name: str) -> Steps[bool]:
        """Delete a schema; false if there was none. Its versions stay readable: messages refer to them."""
        return (yield from self.delete_definition(SCHEMAS, name))

    def example_of_schema(self, name: str, version: int | None = None) -> Steps[Any]:
        """A small value that matches a schema, for a form; `InvalidState` if none can be made."""
        return example((yield from self.get_schema(name, version)))
