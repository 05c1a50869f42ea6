"""The remote store: carries out requests from threads and tasks, asking again where that is safe."""

from __future__ import annotations

import asyncio
import io
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import msgspec

from tampu import tracing
from tampu.broker import access
from tampu.broker.core import StepRunner
from tampu.broker.settings import Settings, resolve
from tampu.broker.store import AllVerbs, Store
from tampu.broker.stream import Stream, StreamRequest
from tampu.client.admin import RemoteAdmin
from tampu.client.async_http import Tasks
from tampu.client.atomic import RemoteAtomic
from tampu.client.failures import Broken, NotSent, NotTrusted, given_up, pauses
from tampu.client.notes import RemoteNotes
from tampu.client.request import Ask, Nap, reader
from tampu.client.schedules import RemoteScheduleVerbs
from tampu.client.sync_http import Threads
from tampu.model.config import BUILT_IN
from tampu.model.errors import InvalidConfig, TampuError, Unavailable
from tampu.model.message import MSGPACK
from tampu.wire import bodies, media
from tampu.wire.problems import from_answer

_ANY = resolve(msgspec.structs.replace(BUILT_IN, max_payload=1 << 30))
_OPENING_SECONDS = 4.0
_READ_ME = reader(bodies.Me)


class AllRemoteVerbs(RemoteAtomic, RemoteAdmin, RemoteNotes, RemoteScheduleVerbs, AllVerbs):
    """Every verb, of one tenant, on a server."""


class _ServersSettings:
    """The settings of queues are the server's business: here, anything goes."""

    def get(self, _tenant: str, _queue: str) -> Settings:
        return _ANY


class RemoteEngine:
    """What a queue shows of the store itself."""

    capabilities: frozenset[str] = frozenset({"group_order"})

    def __init__(self, durability: str) -> None:
        self.durability = durability


class RemoteCore(StepRunner):
    def __init__(self, url: str, token: str | None, tenant: str) -> None:
        super().__init__()
        parts = urllib.parse.urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidConfig(f"not a url: {error}", field="url") from None
        if not host or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidConfig(
                "the url of a server is http://host:port", field="url", hint="give the key as token, or TAMPU_TOKEN"
            )
        headers = {"accept": MSGPACK, "content-type": MSGPACK, "user-agent": "tampu"}
        if token is not None:
            if not token.isascii() or not token.isprintable():
                raise InvalidConfig("the token holds characters that no key has", field="token")
            headers["authorization"] = f"Bearer {token}"
        if tenant != "default":  # the one a key stands for, if it is of one
            headers["tampu-tenant"] = tenant
        prefix = parts.path.rstrip("/")
        self.asked = (url, token, tenant)
        self.url = f"{parts.scheme}://{parts.netloc}{prefix}"
        self.settings = _ServersSettings()
        self._headers = headers
        self._threads = Threads(parts.scheme, host, port, prefix, headers)
        self._loops: dict[asyncio.AbstractEventLoop, Tasks] = {}
        self._ended = threading.Event()
        self.engine = RemoteEngine("full")

    def do(self, step: Ask | Nap) -> Any:
        if isinstance(step, Nap):
            self._ended.wait(step.seconds)
            return None
        if tracing.on() and step.trace is None:
            step.trace = tracing.carrier()
        tries = pauses(step.patience)
        while True:
            self._check_open()
            try:
                return self._read(step, *self._threads.send(step))
            except (NotSent, Broken, Unavailable) as error:
                self._ended.wait(self._again(step, error, tries))

    def open(self, step: Ask) -> io.RawIOBase:
        """The answer as it comes, for what is too long to be held; it is asked again until it has begun."""
        tries = pauses(step.patience)
        while True:
            self._check_open()
            try:
                status, body = self._threads.open(step)
                if status >= 300:
                    raise from_answer(status, body.read())
                return body
            except (NotSent, Broken, Unavailable) as error:
                self._ended.wait(self._again(step, error, tries))

    async def do_async(self, step: Ask | Nap) -> Any:
        if isinstance(step, Nap):
            await asyncio.sleep(step.seconds)
            return None
        if tracing.on() and step.trace is None:
            step.trace = tracing.carrier()
        loop = asyncio.get_running_loop()
        tries = pauses(step.patience)
        while True:
            self._check_open()
            tasks = self._loops.get(loop)
            if tasks is None:
                tasks = self._loops[loop] = Tasks(self.url, self._headers)
            try:
                return self._read(step, *await tasks.send(step))
            except (NotSent, Broken, Unavailable) as error:
                await asyncio.sleep(self._again(step, error, tries))

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("this queue was closed", hint="open it again")

    @staticmethod
    def _read(ask: Ask, status: int, body: bytes) -> Any:
        if status >= 300:
            raise from_answer(status, body)
        try:
            return ask.read(body)
        except msgspec.MsgspecError as error:
            raise TampuError(f"the server's answer can not be read: {error}", hint="is this a tampu server?") from None

    def _again(self, ask: Ask, error: Exception, tries: Iterator[float]) -> float:
        """How long to wait before asking again; raises when that is of no use, or not safe."""
        self._check_open()
        sent = not isinstance(error, NotSent)
        useful = (ask.repeat or not sent) and not isinstance(error, NotTrusted)
        pause = next(tries, None) if useful else None
        if pause is not None:
            if sent and ask.again is not None:
                ask.body = media.write(ask.again, MSGPACK)
            return pause
        if isinstance(error, Unavailable):
            raise error
        raise given_up(error, self.url, sent=sent) from None

    def stream(self, queue: Any, asked: StreamRequest) -> Stream | None:
        from tampu.client.stream import WireStream

        made = WireStream(self.url, self._headers, access.verbs(queue), asked)
        return made if made.begin() else None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._ended.set()
            self._threads.close()

    async def leave_loop(self) -> None:
        tasks = self._loops.pop(asyncio.get_running_loop(), None)
        if tasks is not None:
            await tasks.close()


def another(store: Store) -> Store:
    """A queue of the same tenant with connections of its own, so that closing it ends only what waits on these."""
    core: Any = RemoteCore(*access.core(store).asked)  # type: ignore[attr-defined]  # it is remote
    core.engine.durability = store.durability
    core.engine.capabilities = access.engine(store).capabilities
    return Store(core, store.tenant, on_close=core.close, verbs=AllRemoteVerbs)


def open_remote(url: str, *, token: str | None, tenant: str) -> Store:
    """A queue on a server; asks who we are, so that a bad url or key is known at once."""
    from tampu.broker import validate

    validate.name(tenant, "tenant")
    core: Any = RemoteCore(url, token, tenant)
    try:
        me: bodies.Me = core.do(Ask("GET", "/v1/me", _READ_ME, patience=_OPENING_SECONDS))
        core.engine.durability = me.durability
        core.engine.capabilities |= {f"atomic:{me.atomic}"}
        return Store(core, me.tenant, on_close=core.close, verbs=AllRemoteVerbs)
    except BaseException:
        core.close()
        raise
