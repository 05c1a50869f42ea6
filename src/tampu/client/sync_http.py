"""HTTP for threads: urllib3 with kept connections. Closing the store ends its long polls."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
from typing import Any

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from tampu.client import failures
from tampu.client.failures import ANSWER_SECONDS, CONNECT_SECONDS, Broken, NotSent, NotTrusted
from tampu.client.request import Request

_KEPT_CONNECTIONS = 64


class _Body(io.RawIOBase):
    """A response body as a stream. A connection that ends too early raises `Broken`."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            part: bytes = self._response.read(len(buffer))
        except (HTTPError, OSError) as error:
            raise Broken(str(error)) from None
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Also closes the connection: the rest of the body may be long."""
        if not self.closed:
            self._response.close()
        super().close()


class SyncHttp:
    def __init__(self, scheme: str, host: str, port: int | None, prefix: str, headers: dict[str, str]) -> None:
        kind = urllib3.HTTPSConnectionPool if scheme == "https" else urllib3.HTTPConnectionPool
        self._polls: set[Any] = set()
        self._lock = threading.Lock()
        self._this_thread = threading.local()
        outer = self

        class Pool(kind):  # type: ignore[misc, valid-type]  # one of two classes
            """Records which connections are in a long poll."""

            def _get_conn(self, timeout: float | None = None) -> Any:
                connection = super()._get_conn(timeout)
                if outer._this_thread.polls:
                    with outer._lock:
                        outer._polls.add(connection)
                return connection

            def _put_conn(self, conn: Any) -> None:
                with outer._lock:
                    outer._polls.discard(conn)
                super()._put_conn(conn)

        self._pool: Any = Pool(host, port, maxsize=_KEPT_CONNECTIONS)
        self._prefix = prefix
        self._headers = headers

    def send(self, request: Request) -> tuple[int, bytes]:
        """(status, body)"""
        self._this_thread.polls = bool(request.wait)
        response = self._request(request, preload_content=False)
        try:
            body: bytes = response.read(failures.MAX_ANSWER + 1)
        except (HTTPError, OSError) as error:
            response.close()
            raise Broken(str(error)) from None
        if len(body) > failures.MAX_ANSWER:
            response.close()
            raise failures.too_large()
        response.drain_conn()
        response.release_conn()
        return response.status, body

    def open(self, request: Request) -> tuple[int, io.RawIOBase]:
        """(status, body as a stream)"""
        self._this_thread.polls = False
        response = self._request(request, preload_content=False)
        return response.status, _Body(response)

    def _request(self, request: Request, **options: Any) -> Any:
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS + request.wait)
        try:
            return self._pool.urlopen(
                request.method,
                self._prefix + request.path,
                request.body,
                self._headers | request.trace if request.trace else self._headers,
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=timeout,
                pool_timeout=None,
                **options,
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
        """Close idle connections and end long polls. Other requests finish, so that their callers learn the outcome."""
        with self._lock:
            waiting = [connection.sock for connection in self._polls]
        for sock in waiting:
            if sock is not None:
                with contextlib.suppress(OSError):  # the poll has just ended
                    sock.shutdown(socket.SHUT_RDWR)
        self._pool.close()
