"""Positions of the journal as ids of events, and whose part of the journal a partition is.

Mostly there is one partition. On Redis every queue has one, named by tenant and queue: then an id names those that
matter to who reads, packed when that gets long.
"""

from __future__ import annotations

import base64
import binascii
import zlib

from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position
from tampu.server.auth.grants import Caller
from tampu.wire import positions

_PACKED = "~"
_LONG = 512
_MOST_BYTES = 1 << 20


def write(position: Position) -> str:
    text = positions.write(position)
    if len(text) <= _LONG:
        return text
    return _PACKED + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode().rstrip("=")


def read(id: str) -> Position:
    """The position that `write` made an id of, or one as the journal shows it."""
    try:
        return positions.read(_unpacked(id[1:]) if id.startswith(_PACKED) else id)
    except (ValueError, binascii.Error, zlib.error):
        raise InvalidMessage(
            "this is not the id of an event", field="last-event-id", hint="send it as it came"
        ) from None


def _unpacked(text: str) -> str:
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return zlib.decompressobj().decompress(packed, _MOST_BYTES).decode("ascii")


def queue_of(partition: str) -> str | None:
    """The queue that a partition belongs to; None when all share it."""
    _, slash, queue = partition.partition("/")
    return queue if slash else None


def seen_by(caller: Caller, position: Position) -> Position:
    """The parts whose name tells the caller nothing that it may not view."""
    return {part: offset for part, offset in position.items() if is_seen_by(caller, part)}


def is_seen_by(caller: Caller, partition: str) -> bool:
    queue = queue_of(partition)
    return is_of(partition, caller.tenant) and (queue is None or caller.may("view", queue))


def is_of(partition: str, tenant: str) -> bool:
    """May there be something of this tenant in it?"""
    return "/" not in partition or partition.startswith(f"{tenant}/")
