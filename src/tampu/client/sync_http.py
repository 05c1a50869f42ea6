"""HTTP for threads: urllib3, with connections that are kept; long polls are broken off when the queue is closed."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
from typing import Any

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from tampu.client.failures import ANSWER_SECONDS, CONNECT_SECONDS, Broken, NotSent, NotTrusted
from tampu.client.request import Ask

_KEPT = 64


class _Body(io.RawIOBase):
    """The body of an answer that comes bit by bit. An end before the end is an error."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            part: bytes = self._answer.read(len(buffer))
        except (HTTPError, OSError) as error:
            raise Broken(str(error)) from None
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """What was not read is not worth keeping the connection for."""
        if not self.closed:
            self._answer.close()
        super().close()


class Threads:
    def __init__(self, scheme: str, host: str, port: int | None, prefix: str, headers: dict[str, str]) -> None:
        kind = urllib3.HTTPSConnectionPool if scheme == "https" else urllib3.HTTPConnectionPool
        self._polls: set[Any] = set()
        self._lock = threading.Lock()
        self._here = threading.local()
        outer = self

        class Pool(kind):  # type: ignore[misc, valid-type]  # one of two classes
            """Remembers which connections wait in a long poll."""

            def _get_conn(self, timeout: float | None = None) -> Any:
                connection = super()._get_conn(timeout)
                if outer._here.polls:
                    with outer._lock:
                        outer._polls.add(connection)
                return connection

            def _put_conn(self, conn: Any) -> None:
                with outer._lock:
                    outer._polls.discard(conn)
                super()._put_conn(conn)

        self._pool: Any = Pool(host, port, maxsize=_KEPT)
        self._prefix = prefix
        self._headers = headers

    def send(self, ask: Ask) -> tuple[int, bytes]:
        """(status, body) of the answer."""
        self._here.polls = bool(ask.wait)
        answer = self._ask(ask)
        return answer.status, answer.data

    def open(self, ask: Ask) -> tuple[int, io.RawIOBase]:
        """(status, the body as it comes)"""
        self._here.polls = False
        answer = self._ask(ask, preload_content=False)
        return answer.status, _Body(answer)

    def _ask(self, ask: Ask, **more: Any) -> Any:
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS + ask.wait)
        try:
            return self._pool.urlopen(
                ask.method,
                self._prefix + ask.path,
                ask.body,
                self._headers | ask.trace if ask.trace else self._headers,
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=timeout,
                pool_timeout=None,
                **more,
            )
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise NotSent(str(error)) from None
        except SSLError as error:
            if isinstance(error.args[0], ssl.SSLCertVerificationError):
                raise NotTrusted(str(error)) from None
            raise Broken(str(error)) from None
        except (HTTPError, OSError) as error:
            raise Broken(str(error)) from None

    def close(self) -> None:
        """Close what is kept and break off long polls. Other requests under way are answered: what they did is told."""
        with self._lock:
            waiting = [connection.sock for connection in self._polls]
        for sock in waiting:
            if sock is not None:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    sock.shutdown(socket.SHUT_RDWR)
        self._pool.close()
