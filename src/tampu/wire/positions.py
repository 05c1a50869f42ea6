"""Journal positions as text: ``0:123``, ``default/emails:12,default/reports:3``.

An offset alone means partition 0, the only one that files and databases have.
"""

from __future__ import annotations

from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position

_HINT = "give an offset, or PARTITION:OFFSET,… as shown by the journal; 0 is the beginning"


def write(position: Position) -> str:
    """Text that `read` accepts; an empty journal is at 0."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(position.items())) or "0"


def read(text: str) -> Position:
    position: Position = {}
    for part in text.split(","):
        partition, colon, offset = part.strip().rpartition(":")
        if not offset.isascii() or not offset.isdigit() or (colon and not partition) or len(offset) > 18:
            raise InvalidMessage(f"{text!r:.80} is not a journal position", field="after", hint=_HINT)
        if (partition or "0") in position:
            raise InvalidMessage(f"{text!r:.80} names a partition twice", field="after", hint=_HINT)
        position[partition or "0"] = int(offset)
    return position
