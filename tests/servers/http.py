"""Tampu servers in this process: a whole one on a port of its own, or a node in a hall that many share.

A node is what a test is about; the listening socket around it takes long to start and stop, so a hall keeps one for all
the nodes of a test process and tells them apart by the first part of the path.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
from typing import Any

import uvicorn

from tampu.broker.core import Core
from tampu.server.app import make_app
from tampu.server.auth import first_key
from tampu.server.http.asgi import AsgiApp
from tampu.server.run import Running, listen, uvicorn_config
from tampu.server.server_state import ServerState, open_server_state
from tampu.server.settings import ServerSettings
from tests.servers.ports import free_port


def settings_of(given: dict[str, Any]) -> ServerSettings:
    return ServerSettings(**{"port": 0, "stop_timeout": 5, **given})


class Server:
    """As users have it, but in a thread."""

    def __init__(self, *, clock: Any = None, **settings: Any) -> None:
        self.settings = settings_of({"port": free_port(), **settings})
        self.running = Running(self.settings, clock=clock)
        self.url = self.running.url
        self._thread = threading.Thread(target=self.running.run, name="tampu-server", daemon=True)
        self._thread.start()
        assert self.running.started.wait(60), "the server does not start"

    @property
    def state(self) -> ServerState:
        return self.running.state

    @property
    def token(self) -> str:
        """The admin key, as the first start left it."""
        return first_key.path_of(self.settings).read_text().strip()

    def stop(self) -> None:
        self.running.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server does not stop"


class Hall:
    """One listening server for many nodes, for the life of the process."""

    def __init__(self) -> None:
        settings = settings_of({"port": free_port()})
        self._socket = listen(settings)
        self.url = "http://{}:{}".format(*self._socket.getsockname())
        self.fronts: dict[str, AsgiApp] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._server = uvicorn.Server(uvicorn_config(settings, self._route))
        self._up = threading.Event()
        threading.Thread(target=self._server.run, args=([self._socket],), name="tampu-hall", daemon=True).start()
        assert self._up.wait(60)

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            self.loop = asyncio.get_running_loop()
            await receive()
            await send({"type": "lifespan.startup.complete"})
            self._up.set()
            await receive()
            return
        _, name, rest = scope["path"].split("/", 2)
        scope["path"] = f"/{rest}"
        scope["raw_path"] = scope["raw_path"][len(name) + 1 :]
        await self.fronts[name](scope, receive, send)


@functools.cache
def hall() -> Hall:
    return Hall()


_names = itertools.count(1)


class Stall:
    """A node in the hall; the same to its clients as a server."""

    def __init__(self, *, clock: Any = None, **settings: Any) -> None:
        self.settings = settings_of(settings)
        self._name = f"n{next(_names)}"
        self.state = open_server_state(self.settings, clock=clock)
        try:
            first_key.ensure(self.state.core, self.settings)
        except BaseException:
            self.state.close()
            raise
        self.url = f"{hall().url}/{self._name}"
        self._ended: asyncio.Event | None = None
        self._up = threading.Event()
        loop = hall().loop
        assert loop is not None
        self._running = asyncio.run_coroutine_threadsafe(self._run(), loop)
        hall().fronts[self._name] = make_app(self.state)
        assert self._up.wait(60)

    async def _run(self) -> None:
        self._ended = asyncio.Event()
        async with self.state.running():
            self._up.set()
            await self._ended.wait()

    @property
    def core(self) -> Core:
        return self.state.core

    @property
    def token(self) -> str:
        return first_key.path_of(self.settings).read_text().strip()

    def stop(self) -> None:
        loop = hall().loop
        assert loop is not None
        assert self._ended is not None
        loop.call_soon_threadsafe(self.state.stop)
        loop.call_soon_threadsafe(self._ended.set)
        with contextlib.suppress(TimeoutError):
            self._running.result(60)
        del hall().fronts[self._name]
        self.state.close()
