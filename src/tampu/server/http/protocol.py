"""HTTP and streams on a connection, with what uvicorn leaves open: a limit on headers, no endless wait for anybody."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tampu.model.errors import InvalidMessage, TampuError
from tampu.server.http import fast_publish
from tampu.server.http.request import LARGE
from tampu.server.server_state import ServerState
from tampu.server.settings import ServerSettings
from tampu.wire import media
from tampu.wire.problems import PROBLEM, HeadersTooLarge, RequestTimeout, problem

_STOP_SECONDS = 2.0


def protocol_for(settings: ServerSettings, server: ServerState | None = None) -> type[HttpToolsProtocol]:
    """The protocol with these limits; with a node, publishes of its cleared lanes take the express."""

    class Protocol(_Protocol):
        most_head = settings.max_headers
        patience = settings.read_timeout
        served = None if settings.access_log else server

    return Protocol


def stream_protocol_for(settings: ServerSettings) -> type[WebSocketsSansIOProtocol]:
    class Protocol(_StreamProtocol):
        patience = settings.read_timeout

    return Protocol


class _StreamProtocol(WebSocketsSansIOProtocol):
    """A worker that does not read what it is sent is let go."""

    patience: float
    _stuck: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        self._go_on()
        super().resume_writing()

    def shutdown(self) -> None:
        super().shutdown()
        if self._stuck is not None:  # what it has not read yet it may read now, but not for as long as others work
            self._go_on()
            self._stuck = self.loop.call_later(min(self.patience, _STOP_SECONDS), self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def _go_on(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None


class _Protocol(HttpToolsProtocol):
    most_head: int
    patience: float
    served: ServerState | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Every request would be told twice, and with its query: a link's token must not be in a log.
        self.access_log = False
        self._waits_for = "head"
        """``head``, ``body``, or nothing: the request is whole."""
        self._head = 0
        self._reading = 0
        self._after_body = 0
        """Bytes since the last of the body: trailers are headers too, and nobody wants them."""
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
        self._waits_for, self._head = "head", 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        self._waits_for, self._after_body = "body", -self._reading
        large = self._reading + self._head > self.most_head
        if self.served is not None and not large and self._takes_express(self.served):
            return
        # Only now is a scope needed; it is made with the url and headers that were read meanwhile.
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        if large:
            self.scope[LARGE] = True  # type: ignore[literal-required]  # a key of ours
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = []  # trailers end here, not among the headers of a request that is looked at already

    def on_body(self, body: bytes) -> None:
        self._after_body = -self._reading
        super().on_body(body)

    def _takes_express(self, served: ServerState) -> bool:
        before = self.cycle
        if before is not None and not before.response_complete:  # pipelined: it waits for its turn
            return False
        route = fast_publish.find(served, self.url, self.headers)
        if route is None or self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return False
        if not self.parser.should_keep_alive() or len(self.connections) >= (self.limit_concurrency or 1 << 62):
            return False
        self.cycle = fast_publish.FastPublish(self, served, route)  # type: ignore[assignment]  # it has what is looked at
        self.headers = []
        return True

    def on_message_complete(self) -> None:
        self._waits_for = ""
        super().on_message_complete()
        cycle: Any = self.cycle
        if type(cycle) is fast_publish.FastPublish and not cycle.response_complete:
            cycle.start()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """What was begun did not go on. A request that is answered already needs no other answer."""
        self._timer = None
        if self._waits_for == "body" or self._head > 0:
            self._give_up(RequestTimeout("the request did not arrive in time", hint="send it at once"))
        elif not self.transport.is_closing():
            self.transport.close()

    def _give_up(self, error: TampuError) -> None:
        if self._waits_for == "body" and self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(error)

    # -- a client that does not read its answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        super().resume_writing()

    # -- refusals that no application sees

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidMessage(msg))

    def _refuse(self, error: TampuError) -> None:
        if self.transport.is_closing():
            return
        told = problem(error)
        body = media.write(told, "application/json")
        self.transport.write(
            STATUS_LINE[told.status]
            + f"content-type: {PROBLEM}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        self.transport.close()
