"""Publishes JSON lines from a file or standard input, in one commit per batch.

A file is checked before anything is stored, so that a broken line changes nothing. Standard input may be endless:
the next batch is what has arrived.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import queue as channels
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import tampu
from tampu.cli import output, parse
from tampu.cli.session import Session

BATCH = 1000
_NAMES = frozenset(tampu.NewMessage.__struct_fields__)
Line = tuple[int, bytes]


def publish(session: Session, queue: str, source: str, options: dict[str, Any], *, text: bool, fields: bool) -> None:
    def read(line: Line) -> tampu.NewMessage:
        return _message(line, options, text=text, fields=fields)

    stored = duplicates = 0
    opened: tampu.Store | None = None
    batch: list[Line] = []
    size = None if source == "-" else _check(source, read)
    try:
        with output.progress(f"publishing to {queue}", size, unit="bytes" if size else "") as advance:
            for batch in _stream() if source == "-" else _file(source):
                messages = [read(line) for line in batch]
                if opened is None:
                    opened = session.open_or_create(lambda store, m=messages: store.publish_many(queue, m))  # type: ignore[misc]  # bound now
                made = opened.publish_many(queue, messages)
                stored += len(made)
                duplicates += sum(m.duplicate for m in made)
                advance(sum(len(raw) for _, raw in batch) if size else len(batch))
    except tampu.TampuError as error:
        first, last = batch[0][0], batch[-1][0]
        place = f"line {first}: " if first == last else f"lines {first} to {last}: "
        at = "" if "line " in error.message else place
        error.message = f"{at}{error.message}; {stored} messages were published before"
        raise
    finally:
        if opened is not None:
            opened.close()
    again = f", {duplicates:,} existed already" if duplicates else ""
    session.out.answer(
        {"queue": queue, "published": stored - duplicates, "duplicates": duplicates},
        f"{stored - duplicates:,} messages published to {queue}{again}",
    )


def _message(line: Line, options: dict[str, Any], *, text: bool, fields: bool) -> tampu.NewMessage:
    number, raw = line
    try:
        if text:
            return tampu.NewMessage(raw.rstrip(b"\r\n").decode(), **{**options, "content_type": "text/plain"})
        value = parse.json_value(raw, "payload")
        return tampu.NewMessage(**{**options, **_fields(value)}) if fields else tampu.NewMessage(value, **options)
    except UnicodeDecodeError:
        raise tampu.InvalidMessage(f"line {number}: not UTF-8 text", field="payload") from None
    except tampu.InvalidMessage as error:
        error.message = f"line {number}: {error.message.replace('at line 1, ', 'at ')}"
        raise


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or "payload" not in value:
        raise tampu.InvalidMessage("no field payload", field="payload", hint='a line is {"payload": …, "type": …}')
    for name in value.keys() - _NAMES:
        raise tampu.InvalidMessage(f"unknown field: {name}", field="fields", hint=f"known: {', '.join(sorted(_NAMES))}")
    for name in ("delay", "ttl"):
        if isinstance(value.get(name), str):
            value[name] = parse.duration(value[name], name)
    for name in ("run_at", "deadline"):
        if isinstance(value.get(name), str):
            value[name] = parse.moment(value[name], name)
    return value


def _check(source: str, read: Any) -> int:
    """Check all lines of the file, and return its size."""
    size = 0
    try:
        total = Path(source).stat().st_size
        with output.progress(f"checking {source}", total, unit="bytes") as advance:
            for batch in _file(source):
                for line in batch:
                    read(line)
                read_bytes = sum(len(raw) for _, raw in batch)
                size += read_bytes
                advance(read_bytes)
    except (OSError, ValueError) as error:
        raise parse.unreadable(source, error) from None
    return size


def _lines(file: BinaryIO | io.BufferedIOBase) -> Iterator[Line]:
    for number, raw in enumerate(file, start=1):
        if raw.strip():
            yield number, raw


def _file(source: str) -> Iterator[list[Line]]:
    with Path(source).open("rb") as file:
        lines = _lines(file)
        while batch := list(itertools.islice(lines, BATCH)):
            yield batch


def _stream() -> Iterator[list[Line]]:
    """Standard input; each batch is what has arrived since the last one."""
    arrived: channels.Queue[Line | None] = channels.Queue(2 * BATCH)
    stdin = sys.stdin.buffer

    def read() -> None:
        for line in _lines(stdin):
            arrived.put(line)
        arrived.put(None)

    threading.Thread(target=read, name="tampu-stdin", daemon=True).start()
    while (line := arrived.get()) is not None:
        batch = [line]
        with contextlib.suppress(channels.Empty):
            while line is not None and len(batch) < BATCH:
                line = arrived.get_nowait()
                batch += [] if line is None else [line]
        yield batch
        if line is None:
            return
