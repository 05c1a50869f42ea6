"""HTTP for tasks of an event loop: aiohttp, with connections that are kept; long polls end when the queue is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp
from yarl import URL

from tampu.client.failures import ANSWER_SECONDS, CONNECT_SECONDS, Broken, NotSent, NotTrusted
from tampu.client.request import Ask

Answer = tuple[int, bytes]
"""(status, body)"""


class Tasks:
    """The connections of one loop."""

    def __init__(self, base: str, headers: dict[str, str]) -> None:
        self._base = base
        self._headers = headers
        self._session: aiohttp.ClientSession | None = None
        self._guard: AsyncGenerator[None] | None = None
        self._polls: set[asyncio.Future[Answer]] = set()
        self._others = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def send(self, ask: Ask) -> Answer:
        if not ask.wait:
            self._others += 1
            self._quiet.clear()
            try:
                return await self._request(ask)
            finally:
                self._others -= 1
                if not self._others:
                    self._quiet.set()
        poll = asyncio.ensure_future(self._request(ask))
        self._polls.add(poll)
        try:
            await asyncio.wait({poll})
            if poll.cancelled():
                raise Broken("the queue was closed")
            return poll.result()
        finally:
            poll.cancel()
            self._polls.discard(poll)

    async def _request(self, ask: Ask) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), headers=self._headers, cookie_jar=aiohttp.DummyCookieJar()
            )
            self._guard = self._until_the_loop_ends(self._session)
            await anext(self._guard)
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS + ask.wait)
        url = URL(self._base + ask.path, encoded=True)
        try:
            async with self._session.request(
                ask.method, url, data=ask.body, timeout=timeout, allow_redirects=False, headers=ask.trace
            ) as answer:
                return answer.status, await answer.read()
        except aiohttp.ClientConnectorCertificateError as error:
            raise NotTrusted(str(error)) from None
        except aiohttp.ClientConnectorError as error:
            raise NotSent(str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Broken(str(error) or type(error).__name__) from None

    async def _until_the_loop_ends(self, session: aiohttp.ClientSession) -> AsyncGenerator[None]:
        """A loop that ends finishes its generators: that closes the connections of those who never close."""
        try:
            yield
        finally:
            await session.close()
            await asyncio.sleep(0)  # the connections close in the loop's next turn

    async def close(self) -> None:
        """End the long polls; other requests under way are answered: what they did is told."""
        for poll in self._polls:
            poll.cancel()
        await self._quiet.wait()
        if self._guard is not None:
            guard, self._guard, self._session = self._guard, None, None
            await guard.aclose()
