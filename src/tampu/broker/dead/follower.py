"""The follower that carries out `dead_letter_to`: a copy of each dead letter, in a queue that workers claim from.

A copy has an id derived from the transition, and is stored with the position of the follower: one copy for each death,
whatever crashes. A document links the dead letter to its copy. When the dead letter is replayed, the copy is cancelled;
if a worker has it, the worker is asked to stop. A copy that dies is not copied again, so there are no loops.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker.admin.verbs import DEAD_LETTERS
from tampu.broker.dead.filters import error_of
from tampu.broker.dead.jobs import ORIGIN
from tampu.broker.followers import Effects
from tampu.model.decoders import from_json
from tampu.model.journal import Transition
from tampu.model.message import Message, State
from tampu.model.times import moment

log = logging.getLogger("tampu")
COPY = "dead_letter_copy"
"""Kind of the documents that link a dead letter, by id, to its copy."""
_MOST_ERROR = 500


class Link(msgspec.Struct, frozen=True):
    copy: str
    queue: str


_read = from_json(Link).decode


class DeadLetterFollower:
    name = DEAD_LETTERS

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        links: dict[tuple[str, str], str | None] = {}
        """Copies made or ended in this page, by tenant and dead letter."""
        targets: dict[tuple[str, str], str] = {}

        def target(cause: Transition) -> str:
            found = targets.get((cause.tenant, cause.queue))
            if found is None:
                found = targets[cause.tenant, cause.queue] = effects.settings(cause).dead_letter_to
            return found

        for cause in transitions:
            place = (cause.tenant, cause.id)
            if cause.state is State.DEAD and cause.verb != "adopt":
                queue = target(cause)
                if queue and queue != cause.queue:
                    links[place] = _copy(effects, cause, queue)
            elif cause.verb == "replay":
                copy = links[place] if place in links else _linked(effects, *place)
                if copy is not None:
                    effects.cancel(cause, copy)
                    effects.delete_document(COPY, *place)
                links[place] = None
            elif cause.verb == "purge" and target(cause):
                effects.delete_document(COPY, *place)


def _linked(effects: Effects, tenant: str, id: str) -> str | None:
    document = effects.document(COPY, tenant, id)
    return None if document is None else _read(document.value).copy


def _copy(effects: Effects, cause: Transition, queue: str) -> str | None:
    """Publish the copy. None if there is nothing to copy: the dead letter was replayed or removed, or is a copy."""
    message = effects.message(cause)
    if message is None or message.state is not State.DEAD or ORIGIN in message.headers:
        return None
    options = _options(message)
    publish = functools.partial(effects.publish, cause, queue, message.body.payload)
    why = effects.refusal(cause, queue, message.body.payload, **options)
    if why is not None:  # perhaps the headers of both are too many
        options["headers"] = _origin(message)
        why = effects.refusal(cause, queue, message.body.payload, **options)
    if why is not None:
        log.warning("dead letter %s of queue %s cannot be copied to %s: %s", cause.id, cause.queue, queue, why)
        return None
    id = publish(**options)
    effects.put_document(COPY, cause.tenant, cause.id, Link(id, queue))
    return id


def _options(message: Message) -> dict[str, Any]:
    return {
        "headers": {**message.headers, **_origin(message)}, "labels": message.labels or None,
        "type": message.body.type, "content_type": message.body.content_type,
        "correlation_id": message.correlation_id or message.id,
    }  # fmt: skip


def _origin(message: Message) -> dict[str, str]:
    """Headers that say where a copy comes from, and why it died."""
    return {
        ORIGIN: message.id,
        "tampu-dead-queue": message.queue,
        "tampu-dead-reason": message.reason or "",
        "tampu-dead-error": error_of(message)[:_MOST_ERROR],
        "tampu-dead-attempts": str(message.attempts),
        "tampu-dead-at": moment(message.ended_us or 0).isoformat(),
    }
