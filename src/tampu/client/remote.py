"""The remote store: sends requests from threads and asyncio tasks, and retries where that is safe."""

from __future__ import annotations

import asyncio
import io
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from tampu import tracing
from tampu.broker import access
from tampu.broker.core import StepRunner
from tampu.broker.settings import Settings, resolve
from tampu.broker.store import AllVerbs, Store
from tampu.broker.streams.stream import Stream, StreamRequest
from tampu.client import failures
from tampu.client.admin import RemoteAdmin, RemoteAgentVerbs, RemoteScheduleVerbs
from tampu.client.async_http import AsyncHttp
from tampu.client.atomic import RemoteAtomic
from tampu.client.dead import RemoteDeadVerbs
from tampu.client.erasure import RemoteErasureVerbs
from tampu.client.failures import Broken, NotSent, NotTrusted, given_up, pauses
from tampu.client.flows import RemoteFlowVerbs
from tampu.client.policies import RemotePolicyVerbs
from tampu.client.request import Nap, Request, reader
from tampu.client.reviews import RemoteReviewVerbs
from tampu.client.sync_http import SyncHttp
from tampu.client.topology import RemoteTopologyVerbs
from tampu.client.verbs import RemoteNotes
from tampu.model.config import BUILT_IN
from tampu.model.errors import InvalidConfig, TampuError, Unavailable
from tampu.model.message import MSGPACK
from tampu.wire import bodies, media
from tampu.wire.problems import from_answer

R = TypeVar("R")
_NO_LIMITS = resolve(msgspec.structs.replace(BUILT_IN, max_payload=1 << 30))
_OPENING_SECONDS = 4.0
_READ_ME = reader(bodies.Me)


class AllRemoteVerbs(
    RemoteAtomic,
    RemoteAdmin,
    RemoteDeadVerbs,
    RemoteNotes,
    RemoteScheduleVerbs,
    RemoteAgentVerbs,
    RemoteReviewVerbs,
    RemoteFlowVerbs,
    RemotePolicyVerbs,
    RemoteTopologyVerbs,
    RemoteErasureVerbs,
    AllVerbs,
):
    """All verbs, for one tenant of a server."""


class _NoSettings:
    """The server checks queue settings; the client does not know them."""

    def get(self, _tenant: str, _queue: str) -> Settings:
        return _NO_LIMITS


class RemoteEngine:
    """The properties of the server's engine that a store shows."""

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
        self.settings = _NoSettings()
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
        return self._repeat(step, lambda: self._read(step, *self._sync.send(step)))

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
                return self._read(step, *await http.send(step))
            except (NotSent, Broken, Unavailable) as error:
                await asyncio.sleep(self._pause_before_retry(step, error, tries))

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("this store was closed", hint="open it again")

    @staticmethod
    def _read(request: Request, status: int, body: bytes) -> Any:
        if status >= 300:
            raise from_answer(status, body)
        try:
            return request.read(body)
        except msgspec.MsgspecError as error:
            hint = "check that the url is a tampu server"
            raise TampuError(f"cannot decode the server's response: {error}", hint=hint) from None

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
