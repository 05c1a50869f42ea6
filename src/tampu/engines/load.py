"""Ids that are a prefix and a number, for engines and their callers."""

from __future__ import annotations

import hashlib
import itertools
import operator
import uuid
from collections.abc import Sequence

import msgspec

from tampu.engines.port import Item, Load
from tampu.model.errors import InvalidMessage

NUMBER_BYTES = 5


def named(items: Sequence[Item], name: str) -> list[Item]:
    """Give items ids derived from the name of their batch, so that storing them again finds them."""
    raw = bytearray(hashlib.blake2b(name.encode(), digest_size=11).digest())
    raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80  # UUIDv8
    return [
        item if item.id else msgspec.structs.replace(item, id=_id(bytes(raw), number))
        for number, item in enumerate(items)
    ]


def _id(id_prefix: bytes, number: int) -> str:
    return str(uuid.UUID(bytes=id_prefix + number.to_bytes(NUMBER_BYTES, "big")))


def check(call: Load) -> None:
    """Refuse a call that breaks its contract."""
    numbers, starts, size = call.numbers, call.starts, len(call.bodies)
    if len(call.id_prefix) != 11 or call.id_prefix[6] >> 4 != 8 or call.id_prefix[8] >> 6 != 2:
        raise InvalidMessage("id_prefix must be the first 11 bytes of a UUIDv8", field="id_prefix")
    if not numbers or numbers[0] < 0 or numbers[-1] >= 1 << 8 * NUMBER_BYTES or not _grow(numbers, strictly=True):
        raise InvalidMessage("numbers must increase and be below 2^40", field="numbers")
    if len(starts) != len(numbers) + 1 or len(call.types) != len(numbers):
        raise InvalidMessage("there must be a body and a type for each number", field="bodies")
    if starts[0] < 0 or starts[-1] > size or size >> 31 or not _grow(starts, strictly=False):
        raise InvalidMessage("bodies must be consecutive and smaller than 2 GB in total", field="starts")


def _grow(values: Sequence[int], *, strictly: bool) -> bool:
    if isinstance(values, range):
        return values.step > 0
    return all(map(operator.lt if strictly else operator.le, values, itertools.islice(values, 1, None)))
