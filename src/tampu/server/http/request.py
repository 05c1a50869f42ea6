"""One request as handlers see it: headers, the body within limits, the caller, and the response in the right format."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from tampu import tracing
from tampu.broker.core import Steps
from tampu.broker.store import AllVerbs
from tampu.model.audit import Actor
from tampu.model.errors import InvalidMessage, PayloadTooLarge, RateLimited, TampuError, Unauthorized
from tampu.model.message import JSON
from tampu.server.auth.grants import Caller
from tampu.server.http.access_log import Subject
from tampu.server.limits import OverLimit, Quota
from tampu.server.server_state import ServerState
from tampu.wire import media
from tampu.wire.problems import BY_CODE, PROBLEM, HeadersTooLarge, Internal, problem

R = TypeVar("R")
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[..., Awaitable["Reply"]]
Pairs = list[tuple[bytes, bytes]]
KEY = "tampu.request"
"""The key of the `HttpRequest` in the ASGI scope."""
APP = "tampu.app"
"""The key of the `AsgiApp` in the scope, for requests of the server to itself."""
LARGE = "tampu.large"
"""Set in the scope if the headers may be over the limit, which the protocol knows."""
ADMITTED = "tampu.admitted"
"""Set in the scope if the caller is authenticated."""
SERVER = "tampu.server"
"""The key of the `ServerState` in the scope of a WebSocket, which has no `HttpRequest`."""
MAX_ANONYMOUS_BODY = 4096
"""Maximum bytes of a body from a caller that is not authenticated."""
MAX_SMALL_BODY = 1 << 20
"""Maximum bytes of a body without messages or results; those have the setting ``max_body``."""
_ROWS_PER_TOKEN = 100
_FREE_BYTES = 64 << 10
_INLINE_BYTES = 128 << 10
"""Larger bodies are decoded in a thread, so that the event loop goes on."""
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:\-]{1,128}\Z")


class Disconnected(Exception):
    """The client disconnected; nobody reads a response."""


class Reply:
    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers: Pairs = [
            (b"content-type", content_type.encode()),
            (b"content-length", b"%d" % len(body)),
        ]
        if headers:
            self.headers.extend((name.encode(), value.encode()) for name, value in headers.items())


class HttpRequest:
    __slots__ = (
        "_held", "_receive", "caller", "headers", "id", "quota", "route", "scope", "server", "signed_by", "size",
        "span", "started", "status", "subject",
    )  # fmt: skip

    def __init__(self, server: ServerState, scope: Scope, receive: Receive) -> None:
        self.server = server
        self.scope = scope
        self._receive = receive
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.started = time.perf_counter()
        self.caller: Caller | None = None
        self.signed_by: tuple[str, bytes] | None = None
        """Key id and hash of the secret that signed the request; None if it has a key, a token or a session."""
        self.quota: Quota | None = None
        self.subject = Subject()
        self._held = 0
        """Bytes of the node's budget that this request has."""
        self.size = 0
        """Bytes of the body, once it was read."""
        self.route = "other"
        self.status = 0
        self.span: Any = tracing.request(scope["method"], self._trace_headers()) if server.traced else None
        given = self.headers.get(b"x-request-id")
        self.id = given.decode() if given is not None and _REQUEST_ID.match(given) else server.request_id()

    def check_headers(self) -> None:
        most = self.server.settings.max_headers
        size = len(self.scope["raw_path"]) + len(self.scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in self.scope["headers"])
        if size > most:
            raise HeadersTooLarge(f"the headers have {size} bytes; the limit is {most}", hint="send smaller headers")

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""

    async def admit(self) -> Caller:
        """Authenticate the caller; raises `Unauthorized`."""
        if self.caller is None:
            authenticator = self.server.authenticator
            method = self.scope["method"]
            self.caller = authenticator.known(self.headers, method) or await authenticator.admit(
                self.headers, self.address, method
            )
            self.scope[ADMITTED] = True
        return self.caller

    async def readmit(self) -> Caller:
        """Authenticate the caller again: its key or session can end during a long request."""
        authenticator = self.server.authenticator
        if self.signed_by is not None:
            self.caller = await authenticator.admit_hash(*self.signed_by, self.headers)
        else:
            self.caller = await authenticator.readmit(self.headers, self.scope["method"])
        return self.caller

    @property
    def verbs(self) -> AllVerbs:
        """The verbs of the caller's tenant."""
        assert self.caller is not None
        return self.server.verbs(self.caller.tenant).by(self.actor)

    @property
    def actor(self) -> Actor:
        """The caller, as the audit trail names it."""
        assert self.caller is not None
        return Actor(self.caller.name, self.id)

    async def drive(self, steps: Steps[R]) -> R:
        """Carry out a verb."""
        return await self.server.drive(steps)

    async def spend(self, caller: Caller, cost: int) -> None:
        """Count ``cost`` messages against the caller's rate limits; raises `OverLimit`."""
        if self.server.limits.applies(caller):
            self.quota = await self.server.limits.take(caller, max(1, cost))

    @property
    def trace(self) -> dict[str, str]:
        """The trace context for messages of this request that have none of their own."""
        return self._trace_headers() if self.span is None else tracing.inside(self.span)

    def _trace_headers(self) -> dict[str, str]:
        if b"traceparent" not in self.headers:
            return {}
        found = {name: self.headers.get(name.encode(), b"").decode("latin-1") for name in tracing.HEADERS}
        if not _TRACE_PARENT.match(found["traceparent"]):
            return {}
        return {name: value for name, value in found.items() if 0 < len(value) <= 2048 and value.isascii()}

    async def charge(self, caller: Caller, cost: int) -> None:
        """Count messages that were delivered already against the rate limits."""
        if cost > 0 and self.server.limits.applies(caller):
            self.quota = await self.server.limits.charge(caller, cost)

    # -- the body

    async def body(self, most: int | None = None) -> bytes:
        """The whole body. One that is too large is refused before it is read; the protocol ends slow ones."""
        most = self.server.settings.max_body if most is None else most
        length = self.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > most):
            raise _too_large(most)
        self._hold(0 if length is None else int(length))
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body: bytes = message.get("body", b"")
        self._hold(len(body))
        if message.get("more_body"):
            body = await self._rest(body, most)
        if self.caller is not None and self.caller.dropped:  # while the body arrived
            await self.readmit()
        self.size = len(body)
        return body

    async def _rest(self, first: bytes, most: int) -> bytes:
        parts, size = [first], len(first)
        while size <= most:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._hold(size)
            if not message.get("more_body") and size <= most:
                return b"".join(parts)
        raise _too_large(most)

    def _hold(self, size: int) -> None:
        """Take the bytes of the body from the node's budget, until `release`. A small body costs nothing."""
        if size > max(self._held, _FREE_BYTES):
            self.server.budget.body_bytes.take(size - self._held)
            self._held = size

    def release(self) -> None:
        """The request is over."""
        self.server.budget.body_bytes.give(self._held)
        self._held = 0

    async def read(self, form: media.Form, most: int = MAX_SMALL_BODY) -> Any:
        """The body as a struct, from JSON or MessagePack."""
        body = await self.body(min(most, self.server.settings.max_body))
        return await self.off_loop(form.read, body, self.media)

    async def read_large(self, form: media.Form) -> Any:
        """`read` a body with messages or results, which may have ``max_body`` bytes."""
        return await self.read(form, self.server.settings.max_body)

    async def off_loop(self, work: Callable[..., R], *arguments: Any) -> R:
        """Call a function on what the body has: in a thread if the body is large."""
        return await asyncio.to_thread(work, *arguments) if self.size > _INLINE_BYTES else work(*arguments)

    async def left(self) -> None:
        """Return when the client has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def drive_listing(self, caller: Caller, steps: Steps[R], rows: Callable[[R], int] = lambda _: 0) -> R:
        """Carry out a verb that reads much; it ends when the client leaves. It costs one, and one for each 100 rows."""
        await self.spend(caller, 1)
        found = await self.until_left(self.server.listings.drive(caller, steps))
        await self.charge(caller, rows(found) // _ROWS_PER_TOKEN)
        return found

    async def until_left(self, work: Coroutine[Any, Any, R]) -> R:
        """The result of ``work``, which is cancelled when the client disconnects."""
        task = asyncio.ensure_future(work)
        left = asyncio.ensure_future(self.left())
        try:
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Disconnected
            return task.result()
        finally:
            task.cancel()
            left.cancel()

    @property
    def media(self) -> str:
        given = self.headers.get(b"content-type")
        return JSON if given is None else media.media_of(given.decode("latin-1"))

    @property
    def response_media(self) -> str:
        """The media type of the response."""
        accept = self.headers.get(b"accept")
        if accept is None or accept == b"*/*":
            given = self.headers.get(b"content-type", b"").decode("latin-1")
            return media.response_media(given, JSON)
        return media.response_media(accept.decode("latin-1"), JSON)

    def answer(self, value: Any, status: int = 200) -> Reply:
        form = self.response_media
        return Reply(status, media.write(value, form), form)

    def check_batch(self, items: Sequence[Any], field: str) -> int:
        return check_batch(self.server, items, field)


def check_batch(server: ServerState, items: Sequence[Any], field: str) -> int:
    """The number of items; raises if there are too many."""
    count, most = len(items), server.settings.max_batch
    if count > most:
        raise InvalidMessage(
            f"{count} {field} in one batch; the limit is {most}", field=field, hint="send several batches"
        )
    return count


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is over {most} bytes", field="body", hint="send smaller batches")


# -- errors


def internal_error() -> Internal:
    return Internal("internal error", hint="this is a bug in tampu; its log has the details under the request id")


def refused(server: ServerState, request_id: str, error: TampuError) -> Reply:
    """The problem response for an error, on every path a request can take. Counts it in the metrics."""
    reply = problem(error, request_id)
    headers = {"www-authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
    if reply.retry_after is not None:
        more = 0.5 if isinstance(error, RateLimited) else 0.49
        headers["retry-after"] = str(max(1, round(reply.retry_after + more)))
    if isinstance(error, OverLimit):
        headers |= error.quota.headers()
    server.metrics.refused.labels(reply.code if reply.code in BY_CODE else "other").inc()
    return Reply(reply.status, media.write(reply, JSON), PROBLEM, headers)
