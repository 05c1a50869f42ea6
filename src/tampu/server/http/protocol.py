"""The HTTP protocol of uvicorn, plus a limit on headers and timeouts for slow clients."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tampu.model.errors import InvalidMessage, TampuError
from tampu.server.budget import Resource
from tampu.server.http import fast_publish
from tampu.server.http.request import ADMITTED, LARGE
from tampu.server.server_state import ServerState
from tampu.server.settings import ServerSettings
from tampu.wire import media
from tampu.wire.problems import PROBLEM, HeadersTooLarge, RequestTimeout, problem

_SMALL_REST = 64 << 10
"""A rest of a body that is still read after its request was refused, to keep the connection."""
_LINGER_SECONDS = 1.0
"""For the client to read the answer: closing at once can destroy it on its way."""


def protocol_for(settings: ServerSettings, server: ServerState | None = None) -> type[HttpToolsProtocol]:
    """The HTTP protocol with these limits. With a server, publishes that have a fast route use it."""

    class Protocol(_Protocol):
        most_head = settings.max_headers
        most_body = settings.max_body
        patience = settings.read_timeout
        served = None if settings.access_log else server
        budget = None if server is None else server.budget.connections

    return Protocol


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """The length of the body in bytes, from its headers; `_UNKNOWN` if they do not give it."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else _UNKNOWN
        if name == b"transfer-encoding":
            return _UNKNOWN
    return 0


_UNKNOWN = 1 << 62


class _Protocol(HttpToolsProtocol):
    most_head: int
    most_body: int
    patience: float
    served: ServerState | None
    budget: Resource | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # We have our own access log. uvicorn's would log the query, which can hold the token of a sign-in link.
        self.access_log = False
        self._waits_for = "head"
        """``head``, ``body``, or empty if the request is complete."""
        self._head = 0
        self._reading = 0
        self._at_start = True
        """The bytes that are read begin with a request."""
        self._pipelined = False
        """The request began behind another one in the same read."""
        self._after_body = 0
        """Bytes since the end of the body: trailers, which count against the limit on headers."""
        self._rest = 0
        """Bytes of the body that are still to come; more than anybody sends if their number is not known."""
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.patience, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._reading = len(data)
        self._at_start = self._waits_for != "body"
        super().data_received(data)
        if not self._waits_for:
            if self._timer is not None:
                self._cancel()
            return
        if self._waits_for == "head":
            self._head += len(data)
            if self._head > self.most_head:
                self._refuse(HeadersTooLarge(f"the headers have more than {self.most_head} bytes"))
        else:
            self._after_body += len(data)
            if self._after_body > self.most_head:
                self._give_up(HeadersTooLarge(f"the trailers have more than {self.most_head} bytes"))
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience, self._late)

    def on_message_begin(self) -> None:
        # What came before a pipelined request does not count as its head. If that is large, its headers are counted.
        self._waits_for, self._head = "head", 0 if self._at_start else -self._reading
        self._pipelined = not self._at_start
        self._at_start = False
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        self._waits_for, self._after_body = "body", -self._reading
        self._rest = _length(self.headers)
        # Of a head that began behind another request, the bytes of that read are not known: its headers are counted.
        unknown = self._pipelined and self._head >= 0
        large = unknown or self._reading + max(0, self._head) > self.most_head
        if self.served is not None and not large and self._use_fast_path(self.served):
            return
        # The normal path needs a scope. It is made only now, from the url and headers that were read meanwhile.
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        if self.budget is not None and len(self.connections) >= self.budget.most:  # uvicorn answers 503
            self.budget.refused += 1
        if large:
            self.scope[LARGE] = True  # type: ignore[literal-required]  # a key of ours
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = []  # collects the trailers, which must not change the headers of the running request

    def on_body(self, body: bytes) -> None:
        self._after_body = -self._reading
        self._rest -= len(body)
        super().on_body(body)

    def _use_fast_path(self, served: ServerState) -> bool:
        before = self.cycle
        if before is not None and not before.response_complete:  # pipelined: it must wait
            return False
        route = fast_publish.find(served, self.url, self.headers)
        if route is None or self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return False
        if not self.parser.should_keep_alive() or len(self.connections) >= (self.limit_concurrency or 1 << 62):
            return False
        self.cycle = fast_publish.FastPublish(self, served, route)  # type: ignore[assignment]  # it has the attributes that are used
        self.headers = []
        return True

    def on_message_complete(self) -> None:
        self._waits_for = ""
        super().on_message_complete()
        cycle: Any = self.cycle
        if type(cycle) is fast_publish.FastPublish and not cycle.response_complete:
            cycle.start()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._waits_for == "body" and self._rest > self._most_rest() and not self.transport.is_closing():
            # It was refused before it arrived.
            self._cancel()
            self._waits_for = ""
            self.flow.pause_reading()
            self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _most_rest(self) -> int:
        """How much is still read. A client with a key could send as much anyway, and gets to read its answer."""
        return self.most_body if ADMITTED in getattr(self.cycle, "scope", ()) else _SMALL_REST

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """The request did not arrive in time. If it was answered already, only close the connection."""
        self._timer = None
        if self._waits_for == "body" or self._head > 0:
            self._give_up(RequestTimeout("the request did not arrive in time", hint="send it without pauses"))
        elif not self.transport.is_closing():
            self.transport.close()

    def _give_up(self, error: TampuError) -> None:
        if self._waits_for == "body" and self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(error)

    # -- a client that does not read its response

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        super().resume_writing()

    # -- requests that are refused before they reach the application

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidMessage(msg))

    def _refuse(self, error: TampuError) -> None:
        if self.transport.is_closing():
            return
        reply = problem(error)
        body = media.write(reply, "application/json")
        self.transport.write(
            STATUS_LINE[reply.status]
            + f"content-type: {PROBLEM}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        self.transport.close()
