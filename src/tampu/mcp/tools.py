"""How a function becomes a tool: its signature is the schema of its arguments, its docstring the description.

A tool of two steps first returns a preview with a confirmation token, and acts when it is called again with that token.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from tampu.mcp.confirmations import SECONDS, digest
from tampu.mcp.context import Access, ToolContext
from tampu.model.decoders import convert
from tampu.model.errors import Forbidden, InvalidMessage, InvalidState, NotFound, TampuError, Unavailable

log = logging.getLogger("tampu.mcp")
MOST_BYTES = 100_000
"""Of an answer."""
READ_SECONDS = 30.0
"""For a tool that only reads."""
_CONFIRM = Annotated[str | None, Meta(description="The confirm of the preview; without it nothing is changed")]

Run = Callable[..., Awaitable[Any]]


class Plan(msgspec.Struct):
    """What a tool of two steps is about to do."""

    shown: dict[str, Any]
    """The preview. If the second call computes another one, it is refused."""
    act: Callable[[], Awaitable[Any]]
    kept: dict[str, Any] = {}
    """What the second call gets as ``kept``, such as the time of the preview."""


class Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    permission: str
    run: Run
    arguments: type[msgspec.Struct]
    schema: dict[str, Any]
    reads: bool
    """It changes nothing."""
    steps: int
    """2: preview, then confirm."""
    destructive: bool
    everywhere: bool
    all_tenants: bool

    def allowed(self, access: Access) -> bool:
        return access.may(self.permission, everywhere=self.everywhere, all_tenants=self.all_tenants)

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()


TOOLS: dict[str, Tool] = {}


def tool(
    permission: str,
    *,
    steps: int = 1,
    changes: bool = False,
    destructive: bool = False,
    everywhere: bool = False,
    all_tenants: bool = False,
) -> Callable[[Run], Run]:
    """Register a tool, for callers with the permission in some queue, or ``everywhere``."""

    def register(run: Run) -> Run:
        hints = get_type_hints(run, include_extras=True)
        fields: list[Any] = []
        for name, parameter in list(inspect.signature(run).parameters.items())[1:]:
            if name != "kept":
                one = (name, hints[name])
                fields.append(one if parameter.default is inspect.Parameter.empty else (*one, parameter.default))
        if steps == 2:
            fields.append(("confirm", _CONFIRM, None))
        name = run.__name__
        arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        about = inspect.cleandoc(run.__doc__ or "")
        if steps == 2:
            about += " Two steps: the first call only shows a preview; call again with its confirm to do it."
        TOOLS[name] = Tool(
            name, about, permission, run, arguments, _schema(arguments), not changes and steps == 1, steps, destructive,
            everywhere, all_tenants,
        )  # fmt: skip
        return run

    return register


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (root,), definitions = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    whole = dict(definitions.pop(root["$ref"].rpartition("/")[2]))
    whole.pop("title", None)
    return whole | ({"$defs": definitions} if definitions else {})


def allowed(access: Access) -> list[Tool]:
    return [one for one in TOOLS.values() if one.allowed(access)]


async def call(at: ToolContext, name: str, given: Mapping[str, Any] | None) -> Any:
    """Carry out a tool; raises `TampuError`."""
    found = TOOLS.get(name)
    if found is None:
        raise NotFound(f"no tool {name:.100}", hint="list the tools")
    if not found.allowed(at.access):
        raise Forbidden(f"this caller may not use {name}", hint=f"use a key with the permission {found.permission}")
    arguments = _arguments(found, given or {})
    if found.steps == 2:
        return await _two_steps(at, found, arguments)
    if not found.reads:
        return await found.run(at, **arguments)
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await found.run(at, **arguments)
    except TimeoutError:
        raise Unavailable(
            f"{name} took more than {READ_SECONDS:g} seconds", hint="ask for less: one queue, one state, a shorter time"
        ) from None


async def _two_steps(at: ToolContext, found: Tool, arguments: dict[str, Any]) -> Any:
    token = arguments.pop("confirm")
    confirmed = None if token is None else at.confirmations.check(token, found.name, arguments)
    plan: Plan = await found.run(at, kept=None if confirmed is None else confirmed.kept, **arguments)
    if confirmed is None:
        return {
            "preview": plan.shown,
            "confirm": at.confirmations.token(found.name, arguments, plan.shown, plan.kept),
            "expires_in_seconds": SECONDS,
            "next": f"Nothing was changed. To do it, call {found.name} again with the same arguments and this confirm.",
        }
    if confirmed.shown != digest(plan.shown):
        raise InvalidState(
            "this is not what the preview has shown: it has changed since",
            field="confirm",
            hint=f"call {found.name} without confirm and look again",
        )
    return await plan.act()


def _arguments(found: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        made = convert(dict(given), found.arguments)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$")
        field = at.strip(".`") or None
        raise InvalidMessage(
            f"{field}: {text}" if field else text,
            field=field,
            hint=f"arguments of {found.name}: {', '.join(found.arguments.__struct_fields__) or 'none'}",
        ) from None
    return {name: getattr(made, name) for name in made.__struct_fields__}


def encoded(answer: Any) -> bytes:
    """An answer as JSON, within bounds."""
    text = msgspec.json.encode(answer, enc_hook=str)
    if len(text) > MOST_BYTES:
        raise InvalidMessage(
            f"the answer has {len(text):,} bytes; the limit is {MOST_BYTES:,}", hint="ask for less: a smaller limit"
        )
    return text


def error_view(error: TampuError) -> dict[str, Any]:
    found = {"code": error.code, "message": error.message, "field": error.field, "hint": error.hint}
    return {"error": {name: value for name, value in found.items() if value is not None}}
