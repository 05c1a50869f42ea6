"""Runs the server: opens the store and the socket, serves until a signal, then shuts down in order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import uvicorn

from tampu.model.errors import InvalidConfig
from tampu.server.app import make_app
from tampu.server.auth import first_key
from tampu.server.http.protocol import protocol_for, stream_protocol_for
from tampu.server.server_state import ServerState, open_server_state
from tampu.server.settings import ServerSettings


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
        self._socket = _listen(settings)
        try:
            self.state = open_server_state(settings, clock=clock)
            try:
                self.key_id = first_key.ensure(self.state.core, settings) if settings.auth else None
            except BaseException:
                self.state.close()
                raise
        except BaseException:
            self._socket.close()
            raise
        self.started = threading.Event()
        self._server = _Uvicorn(_config(settings, make_app(self.state)), self.state, self.started.set)

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def about(self) -> Started:
        link = None
        if self.key_id is not None:
            link = f"{self.url}/signin?token={self.state.authenticator.sign_in.link_token(self.key_id)}"
        file = str(first_key.path_of(self.settings)) if self.key_id is not None else None
        return Started(self.url, link, file, self.state.core.engine.durability)

    def run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.state.close()

    def stop(self) -> None:
        self._server.should_exit = True


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            field="port",
            hint="check if another server is running, or choose another --port",
        ) from None


def _config(settings: ServerSettings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol_for(settings, getattr(app, "server", None)),
        ws=stream_protocol_for(settings),
        ws_max_size=settings.max_body,
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
