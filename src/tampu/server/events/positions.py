"""Journal positions as event ids, and the tenant and queue of a partition.

Most stores have one partition. On Redis every queue has one, named by tenant and queue. An id then names those that
concern the subscriber, and is compressed if it is long.
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
_MOST_RATIO = 30
"""How much longer a text may be than its packed form. Names of queues repeat each other less than that."""


def write(position: Position) -> str:
    text = positions.write(position)
    if len(text) <= _LONG:
        return text
    return _PACKED + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode().rstrip("=")


def read(id: str) -> Position:
    """The position of an id that `write` made, or of a text that the journal shows."""
    try:
        return positions.read(_unpacked(id[1:]) if id.startswith(_PACKED) else id)
    except (ValueError, binascii.Error, zlib.error):
        raise InvalidMessage(
            "this is not an event id", field="last-event-id", hint="send the id exactly as it was received"
        ) from None


def _unpacked(text: str) -> str:
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return zlib.decompressobj().decompress(packed, min(_MOST_BYTES, _MOST_RATIO * len(packed))).decode("ascii")


def queue_of(partition: str) -> str | None:
    """The queue of a partition; None if all queues share it."""
    _, slash, queue = partition.partition("/")
    return queue if slash else None


def seen_by(caller: Caller, position: Position) -> Position:
    """The position without partitions whose names the caller may not see."""
    return {part: offset for part, offset in position.items() if is_seen_by(caller, part)}


def is_seen_by(caller: Caller, partition: str) -> bool:
    queue = queue_of(partition)
    return is_of(partition, caller.tenant) and (queue is None or caller.may("view", queue))


def is_of(partition: str, tenant: str) -> bool:
    """True if the partition can contain transitions of this tenant."""
    return "/" not in partition or partition.startswith(f"{tenant}/")
