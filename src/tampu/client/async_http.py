"""HTTP for asyncio: aiohttp with kept connections. Closing the store ends its long polls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp
from yarl import URL

from tampu.client import failures
from tampu.client.failures import ANSWER_SECONDS, CONNECT_SECONDS, Broken, NotSent, NotTrusted
from tampu.client.request import Request

Response = tuple[int, bytes]
"""(status, body)"""


class AsyncHttp:
    """The connections of one event loop."""

    def __init__(self, base: str, headers: dict[str, str]) -> None:
        self._base = base
        self._headers = headers
        self._session: aiohttp.ClientSession | None = None
        self._guard: AsyncGenerator[None] | None = None
        self._polls: set[asyncio.Future[Response]] = set()
        self._in_flight = 0
        """Requests that are not long polls."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(self, request: Request) -> Response:
        if not request.wait:
            self._in_flight += 1
            self._idle.clear()
            try:
                return await self._request(request)
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._idle.set()
        poll = asyncio.ensure_future(self._request(request))
        self._polls.add(poll)
        try:
            await asyncio.wait({poll})
            if poll.cancelled():
                raise Broken("the store was closed")
            return poll.result()
        finally:
            poll.cancel()
            self._polls.discard(poll)

    async def _request(self, request: Request) -> Response:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), headers=self._headers, cookie_jar=aiohttp.DummyCookieJar()
            )
            self._guard = self._close_with_loop(self._session)
            await anext(self._guard)
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS + request.wait)
        url = URL(self._base + request.path, encoded=True)
        try:
            async with self._session.request(
                request.method, url, data=request.body, timeout=timeout, allow_redirects=False, headers=request.trace
            ) as response:
                return response.status, await read_answer(response)
        except aiohttp.ClientConnectorCertificateError as error:
            raise NotTrusted(str(error)) from None
        except aiohttp.ClientConnectorError as error:
            raise NotSent(str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Broken(str(error) or type(error).__name__) from None

    async def _close_with_loop(self, session: aiohttp.ClientSession) -> AsyncGenerator[None]:
        """A loop finishes its async generators when it ends. This closes the session if nobody closed the store."""
        try:
            yield
        finally:
            await session.close()
            await asyncio.sleep(0)  # connections close in the next iteration of the loop

    async def close(self) -> None:
        """Cancel long polls and wait for all other requests, so that their callers learn the outcome."""
        for poll in self._polls:
            poll.cancel()
        await self._idle.wait()
        if self._guard is not None:
            guard, self._guard, self._session = self._guard, None, None
            await guard.aclose()


async def read_answer(response: aiohttp.ClientResponse) -> bytes:
    """The body, within bounds."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > failures.MAX_ANSWER:
            response.close()
            raise failures.too_large()
    return b"".join(parts)
