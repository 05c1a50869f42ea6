"""Filling a new subscription with what was published before it, as far as the journal and ended messages are kept.

The journal says of each message of a broadcast queue which subscriptions with a ``start`` it has reached. The fill
reads it from the beginning and copies what has not reached this one; the copies and the position are stored as one
unit. So each message comes once: from its publish, if that knew the subscription, else from here. If the process dies
in between, maintenance goes on where it was, and so does the same put again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tampu.broker import publish, recovery, validate
from tampu.broker.audit import Recording
from tampu.broker.core import Read, Steps
from tampu.broker.policies import cel, seen
from tampu.broker.policies.subscriptions.names import reached
from tampu.broker.publish_steps import derived_id
from tampu.broker.settings import Settings
from tampu.engines.port import DeleteDocument, Document, Engine, Item, PutDocument, Together
from tampu.model.decoders import from_json
from tampu.model.definitions import Subscription
from tampu.model.errors import InvalidConfig, VersionConflict
from tampu.model.journal import JournalPage, Position, Transition
from tampu.model.message import Message, State
from tampu.model.times import instant

BEGINNING = "beginning"
KIND = "subscription_fill"
_PAGE = 1000
_KNOWN_SECONDS = 2.0
"""After this time every process that publishes knows of a new subscription."""


class _Fill(msgspec.Struct, frozen=True):
    position: Position = {}
    done: bool = False
    moved_us: int = 0
    """When a process last worked on it."""


_read = from_json(_Fill).decode


def check_start(start: str) -> None:
    if start != BEGINNING:
        try:
            instant(datetime.fromisoformat(start), "start")
        except (ValueError, InvalidConfig) as error:
            raise InvalidConfig(
                f"start must be {BEGINNING!r} or a time with its zone, such as 2026-01-31T08:00:00Z: {error}",
                field="start",
            ) from None


def beginning(tenant: str, subscription: Subscription) -> list[PutDocument]:
    """What is stored with a new subscription."""
    if subscription.start is None:
        return []
    name = subscription.own_queue
    return [PutDocument(KIND, tenant, name, msgspec.json.encode(_Fill())), recovery.marked(KIND, tenant, name)]


def moved_us(engine: Engine, tenant: str, name: str) -> int:
    """When a process last worked on a fill; 0: none has."""
    document = engine.document(KIND, tenant, name)
    return 0 if document is None else _read(document.value).moved_us


def fill(verbs: Recording, subscription: Subscription) -> Steps[None]:
    """Copy what the subscription has not got, unless that is done already."""
    tenant, name = verbs.tenant, subscription.own_queue
    target: Position | None = None
    while True:
        document: Document | None = yield Read(lambda engine: engine.document(KIND, tenant, name))
        if document is None or (known := _read(document.value)).done:
            return
        position = known.position
        page: JournalPage = yield Read(lambda engine: engine.journal(position or None, _PAGE, tenant))  # noqa: B023 - read at once
        if target is None and not page.transitions:
            yield Read(lambda _engine: time.sleep(_KNOWN_SECONDS))
            page = yield Read(lambda engine: engine.journal(position or None, _PAGE, tenant))  # noqa: B023 - read at once
            target = page.latest
        done = target is not None and all(page.position.get(part, 0) >= end for part, end in target.items())
        now: int = yield Read(lambda engine: engine.now())
        state = msgspec.json.encode(_Fill(page.position, done, now))
        calls: list[PutDocument | DeleteDocument] = [PutDocument(KIND, tenant, name, state, document.version)]
        if done:
            calls.append(recovery.unmarked(KIND, tenant, name))
        settings = verbs.core.settings.get(tenant, name)
        items: list[Item] = yield Read(lambda engine: _items(engine, tenant, subscription, settings, page.transitions))  # noqa: B023 - read at once
        publishes = [publish.publish_call(tenant, name, settings, items)] if items else []
        try:
            yield Together(tenant, [*calls, *publishes])
        except VersionConflict:  # somebody else fills it too
            continue


def _items(
    engine: Engine,
    tenant: str,
    subscription: Subscription,
    settings: Settings,
    transitions: Sequence[Transition],
) -> list[Item]:
    validate.check_open(subscription.own_queue, settings)
    since = 0
    if subscription.start not in (None, BEGINNING):
        since = instant(datetime.fromisoformat(subscription.start or ""), "start")
    found = []
    for one in transitions:
        if one.at_us >= since and _missed(subscription, one):
            message = engine.get(tenant, one.id)
            if message is not None and _wants(subscription, message):
                id = derived_id(message.id, f"subscription/{subscription.subscriber}")
                copy = validate.from_body(message.body, id=id, key=None, idempotency_key=None)
                found.append(validate.item(subscription.own_queue, settings, copy))
    return found


def _missed(subscription: Subscription, transition: Transition) -> bool:
    """True if it is the end of a message that was broadcast without this subscription."""
    if transition.queue != subscription.queue or transition.state is not State.DONE:
        return False
    names = reached(transition.detail)
    return names is not None and subscription.subscriber not in names


def _wants(subscription: Subscription, message: Message) -> bool:
    if subscription.filter is None:
        return True
    try:
        return cel.compiled(subscription.filter).is_true(seen.of_message(message))
    except cel.Failed:
        return False
