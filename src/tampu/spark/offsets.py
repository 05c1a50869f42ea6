"""Start and end of a read of the journal: ``startingOffsets``, ``endingOffsets``, ``startingTime``.

A position is ``{partition: offset}`` with the last offset read: a read starts after it, and ends with it.
"""

from __future__ import annotations

import logging

import msgspec

from tampu.model.decoders import from_json
from tampu.model.errors import InvalidConfig, NotFound
from tampu.model.journal import Position
from tampu.spark.options import Options
from tampu.stores.port import ArrowStore

log = logging.getLogger("tampu.spark")

EARLIEST, LATEST = "earliest", "latest"
_EXAMPLE = 'earliest, latest, or a position: {"0": 1200}'
_to_position = from_json(dict[str, int]).decode


def given(options: Options, name: str, default: str) -> str | Position:
    """``earliest``, ``latest`` or a position. Checked here, so that a mistake shows before anything is read."""
    value = options.text(name, default) or default
    if value.lower() in (EARLIEST, LATEST):
        return value.lower()
    try:
        position = _to_position(value)
    except msgspec.DecodeError:
        position = {}
    if not position or any(offset < 0 for offset in position.values()):
        raise InvalidConfig(f"{name} is {value!r}", field=name, hint=_EXAMPLE)
    return position


def resolve(store: ArrowStore, wanted: str | Position, default: str = EARLIEST) -> Position:
    """The position that is meant. Partitions that it does not name start at ``default``."""
    earliest, latest = store.bounds()
    if isinstance(wanted, str):
        return earliest if wanted == EARLIEST else latest
    unknown = set(wanted) - set(latest)
    if unknown:
        raise InvalidConfig(
            f"the journal has no partition {', '.join(sorted(unknown))}",
            field="startingOffsets",
            hint=f"its partitions are {', '.join(sorted(latest))}",
        )
    return (earliest if default == EARLIEST else latest) | wanted


def retained(store: ArrowStore, start: Position, end: Position, fail: bool) -> Position:
    """The start, moved after trimmed transitions. Raises if some were trimmed and ``fail`` is set."""
    earliest, latest = store.bounds()
    moved = dict(start)
    for partition, offset in start.items():
        first, last = earliest.get(partition, 0), latest.get(partition, 0)
        if max(offset, end.get(partition, offset)) > last:
            lost = f"the journal ends at {last}, but it was read up to {max(offset, end.get(partition, offset))} before"
            cure = "if the store was restored or replaced, start with a new checkpoint"
            raise NotFound(lost, field="offset", hint=cure)
        if offset < first and offset < end.get(partition, offset + 1):
            lost = f"transitions {offset + 1} to {min(first, end.get(partition, first))} of the journal were trimmed"
            if fail:
                cure = "read more often or keep the journal longer (journal_retention); failOnDataLoss=false continues"
                raise NotFound(lost, field="offset", hint=cure)
            log.warning("%s; continuing after them", lost)
            moved[partition] = first
    return moved


class Range(msgspec.Struct, frozen=True):
    """A part of the journal for one task: after < offset <= upto."""

    partition: str
    after: int
    upto: int


def split(start: Position, end: Position, pieces: int, least: int) -> list[Range]:
    """Ranges of about the same length, at most ``pieces`` per partition, and of at least ``least`` transitions."""
    found = []
    for partition, after in start.items():
        upto = end.get(partition, after)
        size = max(least, -(-(upto - after) // pieces))
        found += [Range(partition, low, min(low + size, upto)) for low in range(after, upto, size)]
    return found
