"""Definitions of policies: list, get, put and delete, alike for every kind. And the audit trail.

Who may view or operate all queues that a definition is about may view or change it.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Response

from tampu.broker import validate
from tampu.broker.journal_readers import FOLLOWER
from tampu.broker.policies.definitions import Kind
from tampu.broker.policies.kinds import KINDS
from tampu.broker.policies.rules.verbs import RULES
from tampu.model.audit import AuditPage
from tampu.model.definitions import Firing, RuleTest
from tampu.model.errors import Forbidden, NotFound
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import bodies
from tampu.wire.definitions import (
    AlertStatus,
    AuditView,
    RuleTestBody,
    WebhookSecretBody,
    WebhookSecretView,
    body_of,
    list_of,
)
from tampu.wire.media import Form

router = APIRouter(prefix="/v1")
_TEST_RULE = Form(RuleTestBody, has_any=True)
_SECRET = Form(WebhookSecretBody)
Name = Annotated[str, Path(description="Its name")]


def may_all_places(caller: Caller, permission: str, kind: Kind[Any], definition: Any) -> bool:
    return all(caller.may_all(permission, place) for place in kind.places(definition))


async def find_definition(
    request: HttpRequest, caller: Caller, kind: Kind[Any], name: str, permission: str, version: int | None = None
) -> Any:
    """A definition for which the caller has the permission. One that it may not view counts as not found."""
    caller.need_somewhere(permission)
    found = await request.drive(request.verbs.get_definition(kind, name, version))
    if not (may_all_places(caller, "view", kind, found) or may_all_places(caller, permission, kind, found)):
        raise NotFound(f"no {kind.word} {name}", field="name")
    for place in kind.places(found):
        caller.need_pattern(permission, place)
    return found


def _add_routes(kind: Kind[Any]) -> None:
    body_struct, list_struct = body_of(kind.struct), list_of(kind.struct, kind.plural)
    form = Form(body_struct, has_any=True)
    own = APIRouter(prefix=f"/{kind.plural}", tags=[kind.plural])

    @own.get("", operation_id=f"list_{kind.plural}", description=f"All {kind.plural}, by name.", **doc(list_struct))
    async def list_all(request: CurrentRequest, caller: CurrentCaller) -> Response:
        caller.need_somewhere("view")
        found = await request.drive_listing(caller, request.verbs.list_definitions(kind))
        return answer(request, list_struct([one for one in found if may_all_places(caller, "view", kind, one)]))

    @own.get(
        "/{name}",
        operation_id=f"get_{kind.word}",
        description=f"One {kind.word}, as it is now.",
        **doc(kind.struct, more=(404,)),
    )
    async def get_one(
        name: Name,
        request: CurrentRequest,
        caller: CurrentCaller,
        version: Annotated[int | None, Query(description="An earlier version, where they are kept", ge=1)] = None,
    ) -> Response:
        return answer(request, await find_definition(request, caller, kind, name, "view", version))

    @own.put(
        "/{name}",
        operation_id=f"put_{kind.word}",
        description=f"Create or change a {kind.word}. Needs operate in all queues that it is about.",
        **doc(kind.struct, body_struct, more=(404, 409, 507)),
    )
    async def put_one(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
        caller.need_somewhere("operate")
        given = await request.read(form)
        definition = kind.made(name, msgspec.to_builtins(given))
        for place in kind.places(definition):
            caller.need_pattern("operate", place)
        if kind.of_the_store(definition) and not await request.server.of_all_tenants(caller):
            raise Forbidden("this is about the whole store", hint="use a key that is valid for all tenants")
        with contextlib.suppress(NotFound):  # a new one
            old = await request.drive(request.verbs.get_definition(kind, name))
            for place in kind.places(old):
                caller.need_pattern("operate", place)
        return answer(request, await request.drive(request.verbs.put_definition(kind, definition)))

    @own.delete(
        "/{name}",
        operation_id=f"delete_{kind.word}",
        description=f"Delete a {kind.word}.",
        **doc(bodies.Deleted, more=(404, 409, 507)),
    )
    async def delete_one(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
        try:
            await find_definition(request, caller, kind, name, "operate")
        except NotFound:
            return answer(request, bodies.Deleted(False))
        return answer(request, bodies.Deleted(await request.drive(request.verbs.delete_definition(kind, name))))

    router.include_router(own)


@router.get("/alerts/status", operation_id="alert_status", tags=["alerts"], **doc(AlertStatus))
async def alert_status(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The alerts that fire, each with its queue. Those of followers need view in all queues."""
    caller.need_somewhere("view")
    found = await request.drive(request.verbs.alert_status())
    return answer(request, AlertStatus([one for one in found if may_see_firing(caller, one)]))


def may_see_firing(caller: Caller, one: Firing) -> bool:
    return caller.may_all("view", "*") if one.target.startswith(FOLLOWER) else caller.may("view", one.target)


for _kind in KINDS:
    _add_routes(_kind)


@router.post("/rules/{name}/test", operation_id="test_rule", tags=["rules"], **doc(RuleTest, RuleTestBody, more=(404,)))
async def test_rule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """What a rule would do to a message, and why. Nothing is changed."""
    rule = await find_definition(request, caller, RULES, name, "view")
    body: RuleTestBody = await request.read(_TEST_RULE)
    if body.id is not None:
        message = await request.drive(request.verbs.get(body.id))
        if not caller.may("view", message.queue):
            raise NotFound(f"no message {body.id}", field="id")
    steps = request.verbs.test_rule(
        rule.name, body.payload, id=body.id, queue=body.queue, type=body.type, labels=body.labels,
        headers=body.headers, priority=body.priority,
    )  # fmt: skip
    if body.queue is not None:
        await request.server.load_settings(caller.tenant, validate.name(body.queue, "queue"))
    return answer(request, await request.drive(steps))


@router.get("/webhooks/secret", operation_id="has_webhook_secret", tags=["webhooks"], **doc(WebhookSecretView))
async def has_webhook_secret(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Whether deliveries of webhooks are signed. The secret is never shown."""
    caller.need_everywhere("admin")
    return answer(request, WebhookSecretView(await request.drive(request.verbs.has_webhook_secret())))


@router.put(
    "/webhooks/secret",
    operation_id="put_webhook_secret",
    tags=["webhooks"],
    **doc(WebhookSecretView, WebhookSecretBody, more=(507,)),
)
async def put_webhook_secret(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Set the secret that signs deliveries of webhooks, or remove it with null."""
    caller.need_everywhere("admin")
    body: WebhookSecretBody = await request.read(_SECRET)
    steps = request.verbs.put_webhook_secret(body.secret, previous_for=body.previous_for)
    return answer(request, WebhookSecretView(await request.drive(steps)))


@router.get("/audit", operation_id="audit", tags=["audit"], **doc(AuditView))
async def audit(
    request: CurrentRequest,
    caller: CurrentCaller,
    actor: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: Annotated[str | None, Query(description="The cursor of an earlier page")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Who did what, in the order in which it was done. Needs the permission admin in all queues."""
    caller.need_everywhere("admin")
    steps = request.verbs.audit(
        actor=actor, action=action, target=target, since=since, until=until, after=after, limit=limit
    )
    page: AuditPage = await request.drive_listing(caller, steps)
    return answer(request, AuditView(page.records, page.cursor))
