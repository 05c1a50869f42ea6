"""Pages of definitions: rules, schemas and alerts are listed, shown and put as JSON alike."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from fastapi import Response

from tampu.broker import validate
from tampu.broker.policies.definitions import Kind
from tampu.model.errors import Forbidden, InvalidMessage, NotFound
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import json_field, pretty
from tampu.server.routes.definitions import find_definition, may_all_places


class DefinitionPages:
    """The acts of one kind. ``example`` is what a new one begins with; ``where`` the page that lists them."""

    def __init__(self, page: Page, kind: Kind[Any], example: dict[str, Any], where: str) -> None:
        self.kind = kind
        self.example = example
        self.where = where
        page.act(f"/put/{kind.plural}")(self.put)
        page.act(f"/{kind.plural}/{{name}}/delete")(self.delete)

    async def list(self, view: View) -> list[tuple[Any, bool]]:
        """(definition, whether the caller may change it), of those that it may view"""
        found = await view.listing(view.verbs.list_definitions(self.kind))
        return [
            (one, may_all_places(view.caller, "operate", self.kind, one))
            for one in found
            if may_all_places(view.caller, "view", self.kind, one)
        ]

    async def find(self, view: View, name: str, permission: str = "view", version: int | None = None) -> Any:
        return await find_definition(view.request, view.caller, self.kind, name, permission, version)

    def text(self, definition: Any) -> str:
        """A definition as it is typed: without its name and version."""
        fields = msgspec.to_builtins(definition)
        return pretty({name: value for name, value in fields.items() if name not in ("name", "version")})

    async def put(self, view: View) -> Ask:
        view.caller.need_somewhere("operate")
        kind = self.kind
        name = view.query.get("name")
        old = None if name is None else await self.find(view, name, "operate")

        async def do() -> Response:
            made = validate.name(name or view.form.get("name", ""), "name")
            fields = json_field(view.form, "definition", default={})
            if not isinstance(fields, dict):
                raise InvalidMessage("the definition is a JSON object", field="definition")
            definition = kind.made(made, fields)
            for place in kind.places(definition):
                view.caller.need_pattern("operate", place)
            if kind.of_the_store(definition) and not view.all_tenants:
                raise Forbidden("this is about the whole store", hint="use a key that is valid for all tenants")
            with contextlib.suppress(NotFound):  # a new one
                await self.find(view, made, "operate")
            stored = await view.drive(view.verbs.put_definition(kind, definition))
            return view.done(f"Stored {kind.word} {made}, version {stored.version}.", self.where)

        text = view.form.get("definition") or (pretty(self.example) if old is None else self.text(old))
        return Ask(
            title=f"Change {name}" if name else f"A new {kind.word}", button="Store", do=do,
            template="definition_put.html", values={"text": text, "new": name is None}, back=self.where,
            text="It takes effect for what is published from now on.",
        )  # fmt: skip

    async def delete(self, view: View, name: str) -> Ask:
        found = await self.find(view, name, "operate")
        kind = self.kind

        async def do() -> Response:
            await view.drive(view.verbs.delete_definition(kind, name))
            return view.done(f"Deleted {kind.word} {name}.", self.where)

        queues = getattr(found, "queues", ())
        where = f"It is about {', '.join(queues)}." if queues else "It is about all queues."
        return Ask(
            title=f"Delete {kind.word} {name}?", text=where, button="Delete", danger=True, do=do, back=self.where
        )
