"""Keys: make, rotate, revoke. A secret is shown once, in the answer that made it."""

from __future__ import annotations

from fastapi import Response

from tampu.model.errors import Forbidden
from tampu.model.grants import PERMISSIONS
from tampu.model.times import seconds_of
from tampu.server.auth import grants as granting
from tampu.server.auth.grants import ALL_TENANTS, parse
from tampu.server.auth.key_admin import KeyAdmin, KeyView, NewKey
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import number_field
from tampu.server.routes.keys import key_admin_of

page = Page("keys", "Keys", group="4 Admin", needs=("admin",), everywhere=True)


async def _keys(view: View) -> KeyAdmin:
    return await key_admin_of(view.request, view.caller)


@page.show("/keys")
async def keys(view: View) -> Response:
    found: list[KeyView] = await view.drive((await _keys(view)).list())
    return await view.html("keys.html", keys=[(key, _words(key)) for key in found], own=view.caller.key_id)


def _words(key: KeyView) -> list[str]:
    """Grants as they are typed."""
    return [
        ",".join(grant.permissions)
        + (f":{','.join(grant.queues)}" if grant.queues != ("*",) or grant.roles else "")
        + (f"/{','.join(grant.roles)}" if grant.roles else "")
        for grant in key.grants
    ]


async def _show_secret(view: View, made: NewKey, what: str) -> Response:
    return await view.html("key_secret.html", made=made, what=what)


@page.act("/keys/make")
async def make(view: View) -> Ask:
    view.caller.need_everywhere("admin")

    async def do() -> Response:
        form = view.form
        grants = tuple(parse(line.strip()) for line in form.get("grants", "").splitlines() if line.strip())
        granting.within(grants, view.caller)
        shared = form.get("all_tenants") == "yes"
        if shared and not view.all_tenants:
            raise Forbidden("only a key of all tenants can create another", field="all_tenants")
        made = await view.drive(
            KeyAdmin(view.request.server.core, view.caller.tenant, actor=view.request.actor).create(
                form.get("name", ""),
                grants,
                tenant=ALL_TENANTS if shared else None,
                expires_in=seconds_of(form["expires"], "expires") if "expires" in form else None,
                rate=number_field(form, "rate", float) or 0,
            )
        )
        return await _show_secret(view, made, "Made")

    return Ask(
        title="A new key", button="Make it", do=do, template="key_make.html", values={"permissions": PERMISSIONS},
        back="keys", text="Its secret is shown once.",
    )  # fmt: skip


async def _named(view: View, id: str) -> KeyView | None:
    found: list[KeyView] = await view.drive((await _keys(view)).list())
    return next((key for key in found if key.id == id), None)


@page.act("/keys/{id}/rotate")
async def rotate(view: View, id: str) -> Ask:
    key = await _named(view, id)

    async def do() -> Response:
        overlap = seconds_of(view.form.get("overlap", "24h"), "overlap")
        made = await view.drive((await _keys(view)).rotate(id, overlap=overlap))
        return await _show_secret(view, made, "Rotated")

    return Ask(
        title=f"Rotate the key {key.name if key else id}?", button="Rotate", do=do, template="key_rotate.html",
        text="It gets a new secret, which is shown once.", back="keys",
    )  # fmt: skip


@page.act("/keys/{id}/revoke")
async def revoke(view: View, id: str) -> Ask:
    key = await _named(view, id)

    async def do() -> Response:
        await view.drive((await _keys(view)).revoke(id))
        return view.done(f"Revoked {key.name if key else id}.", "keys")

    own = " It is the key that you are signed in with." if id == view.caller.key_id else ""
    return Ask(
        title=f"Revoke the key {key.name if key else id}?", danger=True, button="Revoke", do=do, back="keys",
        text=f"It stops to work on all nodes within a second, and its sessions end.{own}",
    )  # fmt: skip
