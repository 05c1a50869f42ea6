"""trace: the story of the messages that share a correlation id.

Engines find them by an index. What happened to each is read from the message itself: its publish, its failed attempts,
the decision of a person, who works on it, and its end. So a trace costs as much as its messages, however many others
there are. What retention has removed is not in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from tampu.broker import timers, validate
from tampu.broker.core import Core, Read, Steps
from tampu.engines.port import Engine
from tampu.model.errors import NotFound
from tampu.model.message import Message
from tampu.model.states import TERMINAL, State
from tampu.model.trace import Trace, TraceEvent, TraceMessage

MOST = 1000
"""Most messages of a trace."""


class TraceVerbs:
    core: Core
    tenant: str

    def trace(self, correlation_id: str, *, limit: int = 500) -> Steps[Trace]:
        """What happened to the messages with a correlation id, across queues: in order, with causes and durations.

        The id of a message stands for its correlation id: if it has none, for what was published because of it. Raises
        `NotFound` if there is no such message, or it was removed since.
        """
        wanted = validate.text(correlation_id, "correlation_id", 256)
        validate.whole(limit, "limit", 1, MOST)
        found: Trace | None = yield Read(lambda engine: _read(engine, self.tenant, wanted, limit))
        if found is None:
            hint = "pass the correlation id of messages, or the id of one; removed messages are not found"
            raise NotFound(f"no message with the correlation id {wanted}", field="correlation_id", hint=hint)
        return found


def _read(engine: Engine, tenant: str, correlation_id: str, limit: int) -> Trace | None:
    found = engine.correlated(tenant, correlation_id, limit + 1)
    origin = _get(engine, tenant, correlation_id)
    if origin is not None and origin.correlation_id not in (None, correlation_id):
        correlation_id = origin.correlation_id or correlation_id  # it is the id of a message within a story
        found = engine.correlated(tenant, correlation_id, limit + 1)
        origin = _get(engine, tenant, correlation_id)
    if origin is not None and all(message.id != origin.id for message in found):
        found.append(origin)
    if not found:
        return None
    found = [message for message in found if message.queue != timers.QUEUE]
    found.sort(key=lambda message: (message.created_us, message.id))
    shown = [_whole(engine, message) for message in found[:limit]]
    return Trace(correlation_id, _in_order(shown), len(found) <= limit)


def _get(engine: Engine, tenant: str, id: str) -> Message | None:
    try:
        return engine.get(tenant, str(uuid.UUID(id)))
    except ValueError:
        return None


def _whole(engine: Engine, message: Message) -> Message:
    """With its failed attempts, if it can have any."""
    if message.failures or (message.attempts <= 1 and message.last_error is None and message.state is not State.DEAD):
        return message
    return engine.get(message.tenant, message.id) or message


def _in_order(messages: Sequence[Message]) -> list[TraceMessage]:
    """Messages with their causes. A message of the same commit as its cause comes after it."""
    known = {message.id: message for message in messages}
    causes = {message.id: _cause(message, known) for message in messages}

    def depth(id: str) -> int:
        seen = {id}
        while (cause := causes[id]) is not None and cause not in seen:
            seen.add(cause)
            id = cause
        return len(seen)

    ordered = sorted(messages, key=lambda message: (message.created_us, depth(message.id)))
    return [_shown(message, causes[message.id]) for message in ordered]


def _cause(message: Message, known: dict[str, Message]) -> str | None:
    """The message of this story that it was published because of: one that is not younger."""
    for id in (message.causation_id, message.parent_id, message.correlation_id):
        cause = None if id is None else known.get(id)
        if cause is not None and cause is not message and cause.created_us <= message.created_us:
            return cause.id
    return None


def _shown(m: Message, cause: str | None) -> TraceMessage:
    events = [_Event(m.created_at, "published")]
    events += [_Event(f.at, f.outcome, f.attempt, f.worker, f.error) for f in m.failures]
    if m.review is not None and (decision := m.review.decision) is not None:
        text = decision.option if decision.reason is None else f"{decision.option}: {decision.reason}"
        events.append(_Event(decision.at, "reviewed", None, decision.by, text))
        events.sort(key=lambda event: event.at)
    if m.state is State.LEASED and m.started_at is not None:
        events.append(_Event(m.started_at, "claimed", m.attempts, m.worker))
    elif m.state in TERMINAL and m.ended_at is not None:
        events.append(_Event(m.ended_at, str(m.state), detail=m.reason))
    elif m.state in (State.HELD, State.DELAYED):
        until = None if m.run_at is None else f"until {m.run_at.isoformat()}"
        events.append(_Event(events[-1].at, str(m.state), detail=m.reason or until))
    steps = [
        TraceEvent(event.at, event.what, (event.at - before.at).total_seconds(), *event.rest)
        for before, event in zip([events[0], *events], events, strict=False)
    ]
    return TraceMessage(
        m.id, m.queue, m.type, m.state, m.attempts, m.created_at, steps, cause, m.reason, m.worker, m.ended_at
    )


class _Event:
    """An event whose distance from the one before it is not known yet."""

    def __init__(
        self,
        at: datetime,
        what: str,
        attempt: int | None = None,
        worker: str | None = None,
        detail: str | None = None,
    ) -> None:
        self.at = at
        self.what = what
        self.rest = (attempt, worker, detail)
