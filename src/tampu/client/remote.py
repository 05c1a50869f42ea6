"""The remote store: sends requests from threads and asyncio tasks, and retries where that is safe."""

from __future__ import annotations

import asyncio
import io
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tampu import tracing
from tampu.broker import access
from tampu.broker.core import StepRunner
from tampu.broker.store import Store
from tampu.broker.streams.stream import Stream, StreamRequest
from tampu.client import failures
from tampu.client.all_verbs import AllRemoteVerbs, NoSettings, RemoteEngine, read_reply
from tampu.client.async_http import AsyncHttp
from tampu.client.failures import Broken, NotSent, NotTrusted, given_up, pauses
from tampu.client.request import Nap, Request, reader
from tampu.client.sync_http import SyncHttp
from tampu.model.errors import InvalidConfig, Unavailable
from tampu.model.message import MSGPACK
from tampu.wire import bodies, media
from tampu.wire.problems import from_answer

R = TypeVar("R")
_OPENING_SECONDS = 4.0
_READ_ME = reader(bodies.Me)


class RemoteCore(StepRunner):
    def __init__(self, url: str, token: str | None, tenant: str) -> None:
        super().__init__()
        parts = urllib.parse.urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidConfig(f"invalid url: {error}", field="url") from None
        if not host or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidConfig(
                "the url of a server must be http://host:port", field="url", hint="pass the key as token or TAMPU_TOKEN"
            )
        headers = {"accept": MSGPACK, "content-type": MSGPACK, "user-agent": "tampu"}
        if token is not None:
            if not token.isascii() or not token.isprintable():
                raise InvalidConfig("the token has characters that no key has", field="token", hint="copy it again")
            headers["authorization"] = f"Bearer {token}"
        if tenant != "default":  # then the server takes the key's own tenant
            headers["tampu-tenant"] = tenant
        prefix = parts.path.rstrip("/")
        self.opened_with = (url, token, tenant)
        self.url = f"{parts.scheme}://{parts.netloc}{prefix}"
        self.settings = NoSettings()
        self._headers = headers
        self._sync = SyncHttp(parts.scheme, host, port, prefix, headers)
        self._loops: dict[asyncio.AbstractEventLoop, AsyncHttp] = {}
        self._ended = threading.Event()
        self.engine = RemoteEngine("full")

    def do(self, step: Request | Nap) -> Any:
        if isinstance(step, Nap):
            self._ended.wait(step.seconds)
            return None
        if tracing.on() and step.trace is None:
            step.trace = tracing.carrier()
        return self._repeat(step, lambda: read_reply(step, *self._sync.send(step)))

    def open(self, step: Request) -> io.RawIOBase:
        """The response body as a stream, for bodies too large for memory. Retries until the response has begun."""

        def begin() -> io.RawIOBase:
            status, body = self._sync.open(step)
            if status >= 300:
                with io.BufferedReader(body) as problem:
                    raise from_answer(status, problem.read(failures.MAX_ANSWER))
            return body

        return self._repeat(step, begin)

    def _repeat(self, step: Request, send: Callable[[], R]) -> R:
        tries = pauses(step.patience)
        while True:
            self._check_open()
            try:
                return send()
            except (NotSent, Broken, Unavailable) as error:
                self._ended.wait(self._pause_before_retry(step, error, tries))

    async def do_async(self, step: Request | Nap) -> Any:
        if isinstance(step, Nap):
            await asyncio.sleep(step.seconds)
            return None
        if tracing.on() and step.trace is None:
            step.trace = tracing.carrier()
        loop = asyncio.get_running_loop()
        tries = pauses(step.patience)
        while True:
            self._check_open()
            http = self._loops.get(loop)
            if http is None:
                http = self._loops[loop] = AsyncHttp(self.url, self._headers)
            try:
                return read_reply(step, *await http.send(step))
            except (NotSent, Broken, Unavailable) as error:
                await asyncio.sleep(self._pause_before_retry(step, error, tries))

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("this store was closed", hint="open it again")

    def _pause_before_retry(self, request: Request, error: Exception, tries: Iterator[float]) -> float:
        """Seconds to wait before the retry; raises if a retry is not safe or would not help."""
        self._check_open()
        sent = not isinstance(error, NotSent)
        retry = (request.repeat or not sent) and not isinstance(error, NotTrusted)
        pause = next(tries, None) if retry else None
        if pause is not None:
            if sent and request.again is not None:
                request.body = media.write(request.again, MSGPACK)
            return pause
        if isinstance(error, Unavailable):
            raise error
        raise given_up(error, self.url, sent=sent) from None

    def stream(self, queue: Any, asked: StreamRequest) -> Stream | None:
        from tampu.client.stream import WireStream

        stream = WireStream(self.url, self._headers, access.verbs(queue), asked)
        return stream if stream.begin() else None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._ended.set()
            self._sync.close()

    async def leave_loop(self) -> None:
        http = self._loops.pop(asyncio.get_running_loop(), None)
        if http is not None:
            await http.close()


def who(store: Store) -> bodies.Me:
    """The caller that a remote store acts as, and what it may do."""
    core: Any = access.core(store)
    me: bodies.Me = core.do(Request("GET", "/v1/me", _READ_ME))
    return me


def another(store: Store) -> Store:
    """A store of the same tenant with its own connections, so that closing it ends only its own long polls."""
    core: Any = RemoteCore(*access.core(store).opened_with)  # type: ignore[attr-defined]  # it is remote
    core.engine.durability = store.durability
    core.engine.capabilities = access.engine(store).capabilities
    return Store(core, store.tenant, on_close=core.close, verbs=AllRemoteVerbs)


def open_remote(url: str, *, token: str | None, tenant: str) -> Store:
    """Open a store on a server. Calls ``/v1/me`` first, so that a bad url or key fails at once."""
    from tampu.broker import validate

    validate.name(tenant, "tenant")
    core: Any = RemoteCore(url, token, tenant)
    try:
        me: bodies.Me = core.do(Request("GET", "/v1/me", _READ_ME, patience=_OPENING_SECONDS))
        core.engine.durability = me.durability
        core.engine.capabilities |= {f"atomic:{me.atomic}"}
        return Store(core, me.tenant, on_close=core.close, verbs=AllRemoteVerbs)
    except BaseException:
        core.close()
        raise
