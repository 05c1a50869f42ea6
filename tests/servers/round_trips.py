"""A way to a server on which round trips are counted: each time a client speaks after the server has."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import Self

from tests.servers.ports import free_port


class Counted:
    """In front of the server of a url; ``url`` is the way through it."""

    def __init__(self, url: str) -> None:
        found = re.search(r"127\.0\.0\.1:(\d+)", url)
        assert found is not None
        self._port = int(found[1])
        self._door = socket.create_server(("127.0.0.1", free_port()))
        self.url = url.replace(found[0], f"127.0.0.1:{self._door.getsockname()[1]}")
        self.trips = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._door, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += (client, server)
                answered = threading.Event()
                answered.set()
                for source, sink, asks in ((client, server, True), (server, client, False)):
                    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._carry, args=(source, sink, answered, asks), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, answered: threading.Event, asks: bool) -> None:
        with contextlib.suppress(OSError):  # one of them is gone
            while some := source.recv(1 << 16):
                if not asks:
                    answered.set()
                elif answered.is_set():
                    answered.clear()
                    with self._lock:
                        self.trips += 1
                sink.sendall(some)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
