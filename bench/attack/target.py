"""A server to attack, and an honest client beside: how long its requests take, and the memory of the server."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3

_SERVE = "from tampu.cli.main import main; main()"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Target:
    """`tampu serve` in a process of its own, on a file in this folder."""

    def __init__(self, folder: Path) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TAMPU_")}
        command = [sys.executable, "-c", _SERVE, "--json", "serve", "--port", "0", "--log-level", "error"]
        self.process = subprocess.Popen(command, cwd=folder, env=clean, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.url = str(json.loads(self.process.stdout.readline())["url"])
        self.folder = folder
        self.token = (folder / "tampu.db.key").read_text().strip()
        self._pool = urllib3.PoolManager(retries=False, maxsize=100)
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.request("GET", "/health", token=None)[0] == 200:
                    return
            except urllib3.exceptions.HTTPError:
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.05)

    def request(self, method: str, path: str, body: Any = None, *, token: str | None = "", **headers: str) -> Any:
        """(status, body as bytes). A body that is not bytes is sent as JSON; an empty token is the admin's."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["authorization"] = f"Bearer {token or self.token}"
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            given.setdefault("content-type", "application/json")
        answer = self._pool.request(method, self.url + path, body=body, headers=given, redirect=False, timeout=120)
        return answer.status, answer.data

    def key(self, *grants: dict[str, Any]) -> str:
        _, raw = self.request("POST", "/v1/keys", {"name": "attack", "grants": list(grants)})
        return str(json.loads(raw)["token"])

    def connect(self) -> socket.socket:
        at = urlsplit(self.url)
        return socket.create_connection((at.hostname, at.port), timeout=60)

    def stream(self) -> socket.socket:
        """A worker's stream, after its handshake."""
        raw = self.connect()
        raw.sendall(
            f"GET /v1/stream HTTP/1.1\r\nHost: {urlsplit(self.url).netloc}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {self.token}\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in raw.recv(4096):
            pass
        return raw

    @property
    def memory(self) -> int:
        """Resident bytes of the server."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE

    def stop(self) -> None:
        self._pool.clear()
        self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def frame(opcode: int, data: bytes = b"", *, last: bool = True, length: int | None = None) -> bytes:
    """A frame of a WebSocket client, masked with zeros. ``length`` announces more than there is."""
    size = len(data) if length is None else length
    head = bytes([opcode | (0x80 if last else 0)])
    head += bytes([0x80 | size]) if size < 126 else struct.pack("!BQ", 0x80 | 127, size)
    return head + bytes(4) + data


class Honest:
    """A client that publishes, claims and settles all the time, and notes how long each request took."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = threading.Event()
        self.seconds: list[float] = []
        self.memory = 0
        """The most that was seen."""
        self.failed = 0
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Honest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)

    def _work(self) -> None:
        while not self._over.is_set():
            self._note("GET", "/health", None)
            self._note("POST", "/v1/queues/honest/messages", {"n": 1})
            raw = self._note("POST", "/v1/claim", {"queues": "honest"})
            leases = json.loads(raw)["leases"] if raw else []
            settlements = [{"verb": "ack", "receipt": lease["receipt"]} for lease in leases]
            self._note("POST", "/v1/settle", {"settlements": settlements})
            self.memory = max(self.memory, self._target.memory)

    def _note(self, method: str, path: str, body: Any) -> bytes:
        began = time.perf_counter()
        try:
            status, raw = self._target.request(method, path, body)
        except urllib3.exceptions.HTTPError:
            status, raw = 0, b""
        self.seconds.append(time.perf_counter() - began)
        self.failed += not 200 <= status < 300
        return raw if 200 <= status < 300 else b""

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        ordered = sorted(self.seconds) or [0.0]
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]
