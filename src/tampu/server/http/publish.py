"""Publishing: one message as the body itself, or a batch; and the lanes on which both go straight to the commit."""

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
from tampu.server.http.request import HttpRequest, Reply, check_batch
from tampu.server.server_state import ServerState
from tampu.wire import bodies
from tampu.wire.media import write
from tampu.wire.messages import message_view

# -- lanes


class FastRoute:
    """A way that was cleared before: the same key publishes to the same queue, in the same form, again and again."""

    route: str

    def __init__(self, caller: Caller, queue: str, form: str) -> None:
        self.caller = caller
        self.queue = queue
        self.form = form
        self.head = b"content-type: %s\r\n" % form.encode()

    def step(self, server: ServerState, body: bytes) -> Publish | PublishSet | None:
        """What to store; None when that is nothing. The settings of the queue are known."""
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
        """Store what ``make`` makes. Publish steps may take their time: they run beside the loop."""
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

    def read(self, server: ServerState, body: bytes) -> tuple[list[Any], str | None]:  # noqa: ARG002 - batches ask the node
        if self._content_type == JSON:
            bodies.checked_json(body)
        return [Encoded(body, self._content_type)], None

    def answer(self, server: ServerState, messages: list[Message]) -> tuple[int, bytes]:
        (message,) = messages
        server.metrics.publish(self.caller.tenant, self.queue)
        return 200 if message.duplicate else 201, write(
            published(message, self.form, whole=self.has_steps(server)), self.form
        )


class FastRouteMany(FastRoute):
    """The body is a batch, in this form."""

    route = "/v1/queues/{queue}/publish"

    def __init__(self, caller: Caller, queue: str, form: str, media: str) -> None:
        super().__init__(caller, queue, form)
        self._media = media

    def read(self, server: ServerState, body: bytes) -> tuple[list[Any], str | None]:
        asked = bodies.PUBLISH.read(body, self._media)
        check_batch(server, asked.messages, "messages")
        return [new_message(given) for given in asked.messages], asked.once

    def answer(self, server: ServerState, messages: list[Message]) -> tuple[int, bytes]:
        server.tail.wake()
        server.metrics.publish(self.caller.tenant, self.queue, len(messages))
        whole = self.has_steps(server)
        return 200, write(bodies.PublishedMany([published(m, self.form, whole=whole) for m in messages]), self.form)


def _clear(request: HttpRequest, *others: Any, route: FastRoute) -> None:
    """Let requests like this one take the lane, if nothing but their body will tell them apart."""
    if route.caller.key_id is None or request.server.limits.asked(route.caller):
        return
    # It was let in when its headers came; the key may have been revoked while its body did.
    if request.server.authenticator.known(request.headers) is route.caller:
        for key in (fast_publish.route_key(request.scope["raw_path"], request.headers), *others):
            request.server.clear(key, route)


def _is_plain(request: HttpRequest) -> bool:
    # Who asks by a session's cookie is asked each time: only a key in the header is part of what tells lanes apart.
    headers = request.headers
    plain = (
        b"authorization" in headers and not request.scope["query_string"] and not raw_publish.HEADERS & headers.keys()
    )
    return plain and request.span is None


# -- the common way


async def publish_one(request: HttpRequest, queue: str) -> Reply:
    """The body is the payload, of any content type; the fields are headers or in the query."""
    server, headers = request.server, request.headers
    plain = _is_plain(request)
    key = (queue, headers.get(b"authorization"), headers.get(b"content-type"), headers.get(b"accept"))
    route: FastRouteOne | None = server.fast_routes.get(key) if plain else None
    make: Callable[[], Publish | PublishSet | None]
    if route is None:
        caller = await request.admit()
        caller.need("publish", validate.name(queue, "queue"))
        await request.spend(caller, 1)
        (new,) = tracing.carrying([raw_publish.message(request, await request.body())], request.trace)
        await server.load_settings(caller.tenant, queue)
        route = FastRouteOne(caller, queue, request.response_media, new.content_type or "")
        if plain:
            _clear(request, key, route=route)
        make = functools.partial(route.storing, server, [new])
    else:
        request.caller = route.caller
        body = await request.body()
        await server.load_settings(route.caller.tenant, queue)
        make = functools.partial(route.step, server, body)
    messages = await route.store(server, make)
    request.subject.add(ids=(message.id for message in messages))
    status, told = route.answer(server, messages)
    return Reply(status, told, route.form)


async def publish_many(request: HttpRequest, queue: str) -> Reply:
    caller = await request.admit()
    caller.need("publish", validate.name(queue, "queue"))
    asked = await request.read(bodies.PUBLISH)
    count = request.check_batch(asked.messages, "messages")
    await request.spend(caller, count)
    news = tracing.carrying([new_message(given) for given in asked.messages], request.trace)
    key = request.headers.get(b"idempotency-key")
    if key is not None:
        news = raw_publish.keyed(news, key.decode("latin-1"))
    await request.server.load_settings(caller.tenant, queue)
    route = FastRouteMany(caller, queue, request.response_media, request.media)
    if _is_plain(request):
        _clear(request, route=route)
    messages: list[Message] = []
    if news:
        make = functools.partial(route.storing, request.server, news, asked.once, one_request=key is not None)
        messages = await route.store(request.server, make)
    request.subject.add(ids=(message.id for message in messages))
    status, told = route.answer(request.server, messages)
    return Reply(status, told, route.form)


def new_message(given: Any) -> NewMessage:
    new: NewMessage = given.plain() if type(given) is bodies.JsonMessage else given
    return new


def published(m: Message, form: str, *, whole: bool = True) -> bodies.Published:
    """``whole``: the message may not be as the caller sent it, so the answer has all of it."""
    return bodies.Published(
        m.id,
        m.state,
        moment(m.created_us),
        m.max_attempts,
        moment_or_none(m.run_us),
        moment_or_none(m.expires_us),
        m.reason,
        m.duplicate,
        message_view(m, form) if m.duplicate or whole else None,
    )
