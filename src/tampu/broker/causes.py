"""What a task publishes while it runs belongs to the story of its message: it has its correlation id, and its id as
cause and parent, unless it is published with others."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from tampu.model.message import Message, to_new

_running: ContextVar[Message | None] = ContextVar("tampu-cause", default=None)
running = _running.get
"""The message that a task works on in this context; None outside of tasks."""


def begin(message: Message) -> None:
    """From now on, what is published in this context is because of this message."""
    _running.set(message)


def continued(news: Sequence[Any]) -> list[Any]:
    """New messages with the ids that say what they come from, where they have none of their own."""
    cause = running()
    if cause is None:
        return list(news)
    story = cause.correlation_id or cause.id
    made = []
    for new in map(to_new, news):
        ids = (new.correlation_id or story, new.causation_id or cause.id, new.parent_id or cause.id)
        made.append(msgspec.structs.replace(new, correlation_id=ids[0], causation_id=ids[1], parent_id=ids[2]))
    return made
