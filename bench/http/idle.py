"""What a server costs while many clients wait and nothing happens: long polls, event feeds, and streams of workers."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import msgspec

import tampu
from bench.measure import Row, folder

_COUNT = 200
_TICK = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _server(place: Path) -> Iterator[tuple[int, str, str]]:
    """(pid, url, key)"""
    command = [sys.executable, "-m", "bench.http.serve", str(place / "tampu.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        url = str(msgspec.json.decode(process.stdout.readline())["url"])
        yield process.pid, url, (place / "tampu.db.key").read_text().strip()
        process.terminate()


def _share(pid: int, seconds: float) -> float:
    """Percent of a core, after a short pause."""
    time.sleep(1)
    before = _cpu_seconds(pid)
    time.sleep(seconds)
    return (_cpu_seconds(pid) - before) / seconds * 100


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _asked(url: str, key: str, line: str, body: str = "") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(url).port or 0))
    headers = f"host: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    made.sendall(f"{line} HTTP/1.1\r\n{headers}\r\n\r\n{body}".encode())
    return made


def _feed(url: str, key: str) -> socket.socket:
    made = _asked(url, key, "GET /v1/events")
    assert b" 200 " in made.recv(4096)
    return made


def _poll(url: str, key: str) -> socket.socket:
    """A long poll that is not answered before its time is over."""
    return _asked(url, key, "POST /v1/claim", '{"queues": ["bench"], "wait": 30}')


def run(quick: bool) -> list[Row]:
    seconds = 5 if quick else 20
    with folder() as place, _server(place) as (pid, url, key), tampu.open(url, token=key) as store:
        alone = _share(pid, seconds)
        polls = [_poll(url, key) for _ in range(_COUNT)]
        polled = _share(pid, seconds)
        assert not select.select(polls, [], [], 0)[0], "a poll was answered early"
        for one in polls:
            one.close()
        feeds = [_feed(url, key) for _ in range(_COUNT)]
        fed = _share(pid, seconds)
        for one in feeds:
            one.close()
        with contextlib.ExitStack() as stack:
            for _ in range(_COUNT):
                stack.enter_context(store.stream("bench"))
            streamed = _share(pid, seconds)
    return [
        Row("CPU of an idle server", alone, "% of a core"),
        Row(f"CPU with {_COUNT} idle long polls", polled, "% of a core"),
        Row(f"CPU with {_COUNT} idle event feeds", fed, "% of a core"),
        Row(f"CPU with {_COUNT} idle streams of workers", streamed, "% of a core"),
    ]
