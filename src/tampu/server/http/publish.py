"""Publish: one message whose body is the payload, or a batch; and the fast routes of both."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from tampu import tracing
from tampu.broker import validate
from tampu.broker.core import PublishSet
from tampu.engines.port import Publish
from tampu.model.message import JSON, Encoded, Message, NewMessage
from tampu.model.times import moment, moment_or_none
from tampu.server.auth.grants import Caller
from tampu.server.http import fast_publish, raw_publish
from tampu.server.http.request import MAX_SMALL_BODY, HttpRequest, Reply, check_batch
from tampu.server.server_state import ServerState
from tampu.wire import bodies
from tampu.wire.media import decode_part, write
from tampu.wire.messages import message_view

# -- fast routes


class FastRoute:
    """An earlier request was authorized; later ones with the same key, queue and format reuse the decision."""

    route: str

    def __init__(self, caller: Caller, queue: str, form: str) -> None:
        self.caller = caller
        self.queue = queue
        self.form = form
        self.head = b"content-type: %s\r\n" % form.encode()

    def step(self, server: ServerState, body: bytes) -> Publish | PublishSet | None:
        """The publish step for a body; None for an empty batch. The queue's settings must be cached."""
        news, once = self.read(server, body)
        return self.storing(server, news, once) if news else None

    def read(self, server: ServerState, body: bytes) -> tuple[list[Any], str | None]:
        """(the messages, the name of their batch)"""
        raise NotImplementedError

    def storing(
        self, server: ServerState, news: list[Any], once: str | None = None, *, one_request: bool = False
    ) -> Publish | PublishSet:
        step: Publish | PublishSet = server.verbs(self.caller.tenant).publishing(
            self.queue, news, once, one_request=one_request
        )
        return step

    def has_steps(self, server: ServerState) -> bool:
        """True if publish steps may change what is stored, and where."""
        return server.verbs(self.caller.tenant).has_steps(self.queue)

    async def store(self, server: ServerState, make: Callable[[], Publish | PublishSet | None]) -> list[Message]:
        """Store what ``make`` returns. Publish steps can be slow, so they run in a thread."""
        step = await asyncio.to_thread(make) if self.has_steps(server) else make()
        return [] if step is None else await server.core.do_async(step)

    def answer(self, server: ServerState, messages: list[Message]) -> tuple[int, bytes]:
        """(status, body)"""
        raise NotImplementedError


class FastRouteOne(FastRoute):
    """The body is the payload."""

    route = "/v1/queues/{queue}/messages"

    def __init__(self, caller: Caller, queue: str, form: str, content_type: str) -> None:
        super().__init__(caller, queue, form)
        self._content_type = content_type

    def read(self, server: ServerState, body: bytes) -> tuple[list[Any], str | None]:
        most = server.max_payload(self.caller.tenant, self.queue)
        if self._content_type == JSON and len(body) <= most:  # a larger one is refused by the broker, undecoded
            decode_part(body, JSON, most, "payload")
        return [Encoded(body, self._content_type)], None

    def answer(self, server: ServerState, messages: list[Message]) -> tuple[int, bytes]:
        (message,) = messages
        whole = self.has_steps(server)
        server.metrics.publish(self.caller.tenant, self.queue)
        return 200 if message.duplicate else 201, write(published(self.caller, message, self.form, whole), self.form)


class FastRouteMany(FastRoute):
    """The body is a batch in this media type."""

    route = "/v1/queues/{queue}/publish"

    def __init__(self, caller: Caller, queue: str, form: str, media: str) -> None:
        super().__init__(caller, queue, form)
        self._media = media

    def read(self, server: ServerState, body: bytes) -> tuple[list[Any], str | None]:
        batch = bodies.PUBLISH.read(body, self._media)
        check_batch(server, batch.messages, "messages")
        return new_messages(batch.messages, server.max_payload(self.caller.tenant, self.queue)), batch.once

    def answer(self, server: ServerState, messages: list[Message]) -> tuple[int, bytes]:
        server.tail.wake()
        whole = self.has_steps(server)
        server.metrics.publish(self.caller.tenant, self.queue, len(messages))
        views = [published(self.caller, message, self.form, whole) for message in messages]
        return 200, write(bodies.PublishedMany(views), self.form)


# -- the normal path


async def publish_one(request: HttpRequest, queue: str) -> Reply:
    """The body is the payload, of any content type; the other fields are headers or query parameters."""
    server = request.server
    caller = await request.admit()
    caller.need("publish", validate.name(queue, "queue"))
    await request.spend(caller, 1)
    await server.load_settings(caller.tenant, queue)
    most = server.max_payload(caller.tenant, queue)
    # More than fits may arrive, so that the error names the queue's limit.
    body = await request.body(min(server.settings.max_body, max(2 * most, MAX_SMALL_BODY)))
    news = tracing.carrying([await request.off_loop(raw_publish.message, request, body, most)], request.trace)
    await server.load_settings(caller.tenant, queue)  # they may have changed while the body arrived
    return await _store(request, FastRouteOne(caller, queue, request.response_media, news[0].content_type or ""), news)


async def publish_many(request: HttpRequest, queue: str) -> Reply:
    caller = await request.admit()
    caller.need("publish", validate.name(queue, "queue"))
    batch = await request.read_large(bodies.PUBLISH)
    await request.spend(caller, request.check_batch(batch.messages, "messages"))
    await request.server.load_settings(caller.tenant, queue)
    most = request.server.max_payload(caller.tenant, queue)
    news = tracing.carrying(await request.off_loop(new_messages, batch.messages, most), request.trace)
    key = request.headers.get(b"idempotency-key")
    if key is not None:
        news = raw_publish.keyed(news, key.decode("latin-1"))
    route = FastRouteMany(caller, queue, request.response_media, request.media)
    return await _store(request, route, news, batch.once, one_request=key is not None)


async def _store(
    request: HttpRequest, route: FastRoute, news: list[Any], once: str | None = None, *, one_request: bool = False
) -> Reply:
    _add_fast_route(request, route)
    make = functools.partial(route.storing, request.server, news, once, one_request=one_request)
    messages = await route.store(request.server, make) if news else []
    request.subject.add(ids=(message.id for message in messages))
    status, raw = route.answer(request.server, messages)
    return Reply(status, raw, route.form)


def _add_fast_route(request: HttpRequest, route: FastRoute) -> None:
    """Let later requests use the route, if they can differ from this one only in their body."""
    server, headers = request.server, request.headers
    # Only with a key in the header: the key identifies the route, a session cookie would not.
    if route.caller.key_id is None or b"authorization" not in headers or server.limits.applies(route.caller):
        return
    if request.scope["query_string"] or raw_publish.HEADERS & headers.keys() or request.span is not None:
        return
    # The key was checked when the headers arrived; it may have been revoked before the body did.
    if server.authenticator.known(headers) is route.caller:
        server.add_fast_route(fast_publish.route_key(request.scope["raw_path"], headers), route)


def new_messages(given: list[Any], most: int) -> list[NewMessage]:
    """``most``: the maximum bytes of a payload in the queue."""
    return [each.plain(most) for each in given]


def published(caller: Caller, m: Message, form: str, whole: bool = True) -> bodies.Published:
    """``whole``: return the whole message, because it may differ from what the caller sent.

    A message that existed before may be another caller's. Its content is shown only to callers that may view its queue.
    """
    created = moment(m.created_us)
    if m.duplicate and not caller.may("view", m.queue):
        return bodies.Published(m.id, m.state, created, m.max_attempts, duplicate=True)
    return bodies.Published(
        m.id,
        m.state,
        created,
        m.max_attempts,
        moment_or_none(m.run_us),
        moment_or_none(m.expires_us),
        m.reason,
        m.duplicate,
        message_view(m, form) if m.duplicate or whole else None,
    )
