"""Runs the server: opens the store and the socket, serves until a signal, then shuts down in order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
import uvicorn

from tampu.engines.sqlite.checks import access
from tampu.model.errors import InvalidConfig
from tampu.server.app import make_app
from tampu.server.auth import first_key, sessions
from tampu.server.http.protocol import protocol_for
from tampu.server.http.stream_protocol import stream_protocol_for
from tampu.server.server_state import ServerState, open_server_state
from tampu.server.settings import ServerSettings

log = structlog.get_logger("tampu.server")


class Started(msgspec.Struct):
    """What `tampu serve` prints when the server listens."""

    url: str
    sign_in: str | None
    key_file: str | None
    durability: str


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, state: ServerState, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._state = state
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.stop()
        await super().shutdown(sockets)


class Running:
    """A server and its socket. `run` blocks; `stop` may be called from any thread."""

    def __init__(self, settings: ServerSettings, *, clock: Any = None) -> None:
        self.settings = settings
        self._socket = listen(settings)
        try:
            self.state = open_server_state(settings, clock=clock)
            _warn_of_readers(settings)
            try:
                self.key_id = first_key.ensure(self.state.core, settings) if settings.auth else None
            except BaseException:
                self.state.close()
                raise
        except BaseException:
            self._socket.close()
            raise
        self.started = threading.Event()
        self._server = _Uvicorn(uvicorn_config(settings, make_app(self.state)), self.state, self.started.set)
        self.state.budget.connections.measure = lambda: len(self._server.server_state.connections)

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def about(self, *, sign_in: bool) -> Started:
        """``sign_in``: make a link. Only for a terminal: a log keeps it, and others read logs."""
        link = None
        if sign_in and self.key_id is not None:
            link = f"{self.url}/signin?token={sessions.make_link(self.state.core, self.key_id)}"
        file = str(first_key.path_of(self.settings)) if self.key_id is not None else None
        return Started(self.url, link, file, self.state.core.engine.durability)

    def run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.state.close()

    def stop(self) -> None:
        self._server.should_exit = True


def _warn_of_readers(settings: ServerSettings) -> None:
    """The store has all payloads, and hashes of keys: say so if other users of this machine can read its file."""
    file = first_key.store_file(settings.url)
    if file is not None:
        _, level, note = access(file)
        if level != "ok":
            log.warning("store_readable", note=note)


def listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            field="port",
            hint="check if another server is running, or choose another --port",
        ) from None


def uvicorn_config(settings: ServerSettings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol_for(settings, getattr(app, "server", None)),
        ws=stream_protocol_for(settings),
        ws_max_size=settings.max_frame,
        ws_per_message_deflate=False,
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=round(settings.idle_timeout),
        timeout_graceful_shutdown=round(settings.stop_timeout),
    )
