"""Publishing: one message as the body itself, or a batch; and the lanes on which both go straight to the commit."""

from __future__ import annotations

from typing import Any

from tampu import tracing
from tampu.broker import incoming
from tampu.engines.port import Publish
from tampu.model.message import JSON, Encoded, Message, NewMessage
from tampu.model.times import moment, moment_or_none
from tampu.server import express, raw
from tampu.server.auth.grants import Who
from tampu.server.call import Call, Reply, check_batch
from tampu.server.node import Node
from tampu.wire import bodies
from tampu.wire.media import write
from tampu.wire.messages import message_view

# -- lanes


class Lane:
    """A way that was cleared before: the same key publishes to the same queue, in the same form, again and again."""

    route: str

    def __init__(self, who: Who, queue: str, form: str) -> None:
        self.who = who
        self.queue = queue
        self.form = form
        self.head = b"content-type: %s\r\n" % form.encode()

    def step(self, node: Node, body: bytes) -> Publish | None:
        """What to store; None when that is nothing. The settings of the queue are known."""
        raise NotImplementedError

    def answer(self, node: Node, messages: list[Message]) -> tuple[int, bytes]:
        """(status, body)"""
        raise NotImplementedError


class OneLane(Lane):
    """The body is the payload."""

    route = "/v1/queues/{queue}/messages"

    def __init__(self, who: Who, queue: str, form: str, content_type: str) -> None:
        super().__init__(who, queue, form)
        self._content_type = content_type

    def step(self, node: Node, body: bytes) -> Publish:
        if self._content_type == JSON:
            bodies.checked_json(body)
        step: Publish = node.verbs(self.who.tenant).publishing(self.queue, [Encoded(body, self._content_type)])
        return step

    def answer(self, node: Node, messages: list[Message]) -> tuple[int, bytes]:
        (message,) = messages
        node.metrics.publish(self.who.tenant, self.queue)
        return 200 if message.duplicate else 201, write(_published(message, self.form), self.form)


class ManyLane(Lane):
    """The body is a batch, in this form."""

    route = "/v1/queues/{queue}/publish"

    def __init__(self, who: Who, queue: str, form: str, media: str) -> None:
        super().__init__(who, queue, form)
        self._media = media

    def step(self, node: Node, body: bytes) -> Publish | None:
        asked = bodies.PUBLISH.read(body, self._media)
        check_batch(node, asked.messages, "messages")
        return self.storing(node, [_new(given) for given in asked.messages], asked.once)

    def storing(self, node: Node, news: list[Any], once: str | None) -> Publish | None:
        if not news:
            return None
        step: Publish = node.verbs(self.who.tenant).publishing(self.queue, news, once)
        return step

    def answer(self, node: Node, messages: list[Message]) -> tuple[int, bytes]:
        node.tail.stir()
        node.metrics.publish(self.who.tenant, self.queue, len(messages))
        return 200, write(bodies.PublishedMany([_published(m, self.form) for m in messages]), self.form)


def _clear(call: Call, *others: Any, lane: Lane) -> None:
    """Let requests like this one take the lane, if nothing but their body will tell them apart."""
    if lane.who.key_id is None or call.node.limits.asked(lane.who):
        return
    # It was let in when its headers came; the key may have been revoked while its body did.
    if call.node.gate.known(call.headers) is lane.who:
        for key in (express.lane_key(call.scope["raw_path"], call.headers), *others):
            call.node.clear(key, lane)


def _is_plain(call: Call) -> bool:
    # Who asks by a session's cookie is asked each time: only a key in the header is part of what tells lanes apart.
    headers = call.headers
    plain = b"authorization" in headers and not call.scope["query_string"] and not raw.HEADERS & headers.keys()
    return plain and call.span is None


# -- the common way


async def publish_one(call: Call, queue: str) -> Reply:
    """The body is the payload, of any content type; the fields are headers or in the query."""
    node, headers = call.node, call.headers
    plain = _is_plain(call)
    key = (queue, headers.get(b"authorization"), headers.get(b"content-type"), headers.get(b"accept"))
    lane: OneLane | None = node.lanes.get(key) if plain else None
    if lane is None:
        who = await call.admit()
        who.need("publish", incoming.name(queue, "queue"))
        await call.spend(who, 1)
        (new,) = tracing.carrying([raw.message(call, await call.body())], call.trace)
        await node.know(who.tenant, queue)
        lane = OneLane(who, queue, call.wanted, new.content_type or "")
        if plain:
            _clear(call, key, lane=lane)
        step = node.verbs(who.tenant).publishing(queue, [new])
    else:
        call.who = lane.who
        body = await call.body()
        await node.know(lane.who.tenant, queue)
        step = lane.step(node, body)
    messages = await node.core.coalescer.submit_async(step)
    call.subject.add(ids=(message.id for message in messages))
    status, told = lane.answer(node, messages)
    return Reply(status, told, lane.form)


async def publish_many(call: Call, queue: str) -> Reply:
    who = await call.admit()
    who.need("publish", incoming.name(queue, "queue"))
    asked = await call.read(bodies.PUBLISH)
    count = call.check_batch(asked.messages, "messages")
    await call.spend(who, count)
    news = tracing.carrying([_new(given) for given in asked.messages], call.trace)
    key = call.headers.get(b"idempotency-key")
    if key is not None:
        news = raw.keyed(news, key.decode("latin-1"))
    await call.node.know(who.tenant, queue)
    lane = ManyLane(who, queue, call.wanted, call.media)
    if _is_plain(call):
        _clear(call, lane=lane)
    step = lane.storing(call.node, news, asked.once)
    if key is not None and step is not None:
        step = raw.as_one(step)
    messages = [] if step is None else await call.node.core.coalescer.submit_async(step)
    call.subject.add(ids=(message.id for message in messages))
    status, told = lane.answer(call.node, messages)
    return Reply(status, told, lane.form)


def _new(given: Any) -> NewMessage | Encoded:
    new: NewMessage = given.plain() if type(given) is bodies.JsonMessage else given
    if new.id is None and new.content_type is not None and type(new.payload) is bytes and raw.is_bare(new):
        return Encoded(new.payload, new.content_type)
    return new


def _published(m: Message, form: str) -> bodies.Published:
    return bodies.Published(
        m.id,
        m.state,
        moment(m.created_us),
        m.max_attempts,
        moment_or_none(m.run_us),
        moment_or_none(m.expires_us),
        m.reason,
        m.duplicate,
        message_view(m, form) if m.duplicate else None,
    )
