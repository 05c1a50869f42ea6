"""Keys: create, list, rotate, revoke. Needs admin; a key of all tenants also manages the keys of all tenants."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from tampu.model.errors import Forbidden, InvalidMessage
from tampu.model.grants import Grant
from tampu.server.auth import grants as granting
from tampu.server.auth.grants import ALL_TENANTS, Caller
from tampu.server.auth.key_admin import KeyAdmin, KeyView, NewKey
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import bodies
from tampu.wire.media import Form

router = APIRouter(prefix="/v1/keys", tags=["keys"])


class CreateKey(bodies.RequestBody):
    """``all_tenants`` makes a key that may act in every tenant; only such a key can make another."""

    name: str
    grants: tuple[Grant, ...]
    expires_in: float | None = None
    rate: float = 0
    burst: int = 0
    all_tenants: bool = False


class RotateKey(bodies.RequestBody):
    overlap: float = 86_400
    """Seconds for which the old secret stays valid."""


class Keys(msgspec.Struct):
    keys: list[KeyView]


CREATE, ROTATE = Form(CreateKey), Form(RotateKey)


async def key_admin_of(request: HttpRequest, caller: Caller) -> KeyAdmin:
    caller.need_everywhere("admin")
    shared = await request.server.of_all_tenants(caller)
    return KeyAdmin(request.server.core, caller.tenant, shared=shared, actor=request.actor)


@router.get("", operation_id="list_keys", **doc(Keys))
async def list_keys(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The keys of the tenant, without their secrets. A key of all tenants also sees the keys of all tenants."""
    key_admin = await key_admin_of(request, caller)
    return answer(request, Keys(await request.drive(key_admin.list())))


@router.post("", operation_id="create_key", **doc(NewKey, CreateKey, status=201, more=(507,)))
async def create_key(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Create a key. Only this response contains its token."""
    caller.need_everywhere("admin")
    body: CreateKey = await request.read(CREATE)
    granting.within(body.grants, caller)
    if body.all_tenants and not await request.server.of_all_tenants(caller):
        raise Forbidden("only a key of all tenants can create another", field="all_tenants")
    if len(body.grants) > 50:
        raise InvalidMessage("a key has at most 50 grants", field="grants")
    made = await request.drive(
        KeyAdmin(request.server.core, caller.tenant, actor=request.actor).create(
            body.name,
            body.grants,
            tenant=ALL_TENANTS if body.all_tenants else None,
            expires_in=body.expires_in,
            rate=body.rate,
            burst=body.burst,
        )
    )
    return answer(request, made, 201)


@router.post("/{id}/rotate", operation_id="rotate_key", **doc(NewKey, RotateKey, more=(404, 409, 507)))
async def rotate_key(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Give the key a new secret; the old one stays valid for ``overlap`` seconds."""
    key_admin = await key_admin_of(request, caller)
    body: RotateKey = await request.read(ROTATE)
    return answer(request, await request.drive(key_admin.rotate(id, overlap=body.overlap)))


@router.delete("/{id}", operation_id="revoke_key", **doc(bodies.Deleted, more=(404, 507)))
async def revoke_key(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Revoke a key, on all nodes within a second. Its long polls and streams end."""
    key_admin = await key_admin_of(request, caller)
    await request.drive(key_admin.revoke(id))
    return answer(request, bodies.Deleted(True))
