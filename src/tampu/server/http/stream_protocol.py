"""The WebSocket protocol of uvicorn, with limits: a stream can neither occupy the event loop nor keep memory.

What arrives is parsed in small slices, and everybody else has a turn between two of them. Reading pauses meanwhile, so
a client that sends faster than that waits. Frames that carry no message (ping, pong, continuation) are counted, and a
message must arrive completely in the time that a request has.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tampu.server.settings import ServerSettings

_SLICE_BYTES = 4096
"""Parsed at once: at most some 700 empty frames, about 10 ms."""
_MAX_CONTROL = 200
"""Pings and pongs in one read timeout. A client that keeps its connection alive sends a few."""
_MAX_FRAGMENTS = 1000
"""Frames of one message."""
_TOO_MANY = 1008
"""Close code: policy violation."""
_STOP_SECONDS = 2.0


def stream_protocol_for(settings: ServerSettings) -> type[WebSocketsSansIOProtocol]:
    class Protocol(_StreamProtocol):
        patience = settings.read_timeout

    return Protocol


class _StreamProtocol(WebSocketsSansIOProtocol):
    patience: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = bytearray()
        """Arrived and not parsed yet; the transport does not read while there is any."""
        self._next_slice: asyncio.Handle | None = None
        self._control = 0
        self._control_since = 0.0
        self._late: asyncio.TimerHandle | None = None
        """Runs while a message has begun and the rest is waited for."""
        self._stuck: asyncio.TimerHandle | None = None
        """Runs while the client does not read what is sent."""

    # -- what arrives

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if self._next_slice is None:
            self._parse_slice()

    def _parse_slice(self) -> None:
        self._next_slice = None
        part = bytes(self._unread[:_SLICE_BYTES])
        del self._unread[:_SLICE_BYTES]
        super().data_received(part)
        if self.transport.is_closing():
            self._unread.clear()
        elif self._control > _MAX_CONTROL or len(self.frames) > _MAX_FRAGMENTS:
            self._fail(_TOO_MANY, "too many frames without a message")
        elif not self.read_paused:
            self._read_on()
        self._watch_message()

    def _read_on(self) -> None:
        """Parse the next slice when everybody else had a turn; read from the socket when there is none."""
        if self._unread:
            self.transport.pause_reading()
            self._next_slice = self.loop.call_soon(self._parse_slice)
        else:
            self.transport.resume_reading()

    async def receive(self) -> Any:
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._read_on()
            self._watch_message()
        return message

    def handle_ping(self) -> None:
        super().handle_ping()
        self._count_control()

    def handle_pong(self, event: Any) -> None:
        super().handle_pong(event)
        self._count_control()

    def _count_control(self) -> None:
        now = self.loop.time()
        if now - self._control_since > self.patience:
            self._control_since, self._control = now, 0
        self._control += 1

    def _watch_message(self) -> None:
        """Time what the client has begun. Not while we are the ones who pause."""
        begun = self.conn.current_size is not None or bool(self.conn.reader.buffer)
        waits = begun and not self._unread and not self.read_paused and not self.transport.is_closing()
        if waits and self._late is None:
            self._late = self.loop.call_later(self.patience, self._fail, _TOO_MANY, "the frame did not arrive in time")
        elif not waits and self._late is not None:
            self._late.cancel()
            self._late = None

    def _fail(self, code: int, reason: str) -> None:
        self._unread.clear()
        if self.transport.is_closing():
            return
        if not self.handshake_complete or self.close_sent:
            self.transport.abort()
            return
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    # -- a client that does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_abort()
        super().resume_writing()

    def shutdown(self) -> None:
        super().shutdown()
        if self._stuck is not None:  # a worker that does not read must not delay the shutdown
            self._cancel_abort()
            self._stuck = self.loop.call_later(min(self.patience, _STOP_SECONDS), self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_abort()
        for waiting in (self._late, self._next_slice):
            if waiting is not None:
                waiting.cancel()
        super().connection_lost(exc)

    def _cancel_abort(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
