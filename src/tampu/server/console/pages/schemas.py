"""Schemas: what payloads must look like, with an example and earlier versions."""

from __future__ import annotations

from fastapi import Response

from tampu.broker.policies.schemas.verbs import SCHEMAS
from tampu.model.definitions import Schema
from tampu.model.errors import TampuError
from tampu.server.console.definitions_page import DefinitionPages
from tampu.server.console.page import Page, View
from tampu.server.console.parts import number_field, pretty

page = Page("schemas", "Schemas", group="2 Set up")
_EXAMPLE = {
    "schema": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string", "format": "email"}}},
    "queues": ["emails"],
    "compatibility": "backward",
}


@page.show("/schemas")
async def schemas(view: View) -> Response:
    return await view.html(
        "schemas.html", schemas=await SCHEMA_PAGES.list(view), may_make=view.caller.somewhere("operate")
    )


SCHEMA_PAGES = DefinitionPages(page, SCHEMAS, _EXAMPLE, "schemas")


@page.show("/schemas/{name}")
async def schema(view: View, name: str) -> Response:
    newest: Schema = await SCHEMA_PAGES.find(view, name)
    version = number_field(view.query, "version")
    found: Schema = newest if version is None else await SCHEMA_PAGES.find(view, name, version=version)
    try:
        example = pretty(await view.drive(view.verbs.example_of_schema(name, version)))
    except TampuError as error:
        example = str(error)
    return await view.html(
        "schema.html", schema=found, newest=newest.version, text=SCHEMA_PAGES.text(found), example=example,
        may=all(view.caller.may_all("operate", place) for place in SCHEMAS.places(newest)),
    )  # fmt: skip
