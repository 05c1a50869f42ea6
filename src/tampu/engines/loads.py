"""What a `Load` must be like, and the same as a `Publish`, for an engine that has no faster way."""

from __future__ import annotations

import itertools
import operator
import uuid
from collections.abc import Sequence

from tampu.engines.port import Item, Load, Publish
from tampu.model.errors import InvalidMessage
from tampu.model.message import unpack_body

NUMBER_BYTES = 5


def as_publish(call: Load) -> Publish:
    """The call message by message; what it stores are the messages of its reply that are no duplicates."""
    check(call)
    items = []
    for number, (start, end) in zip(call.numbers, itertools.pairwise(call.starts), strict=True):
        packed = bytes(call.bodies[start:end])
        id = uuid.UUID(bytes=call.stem + number.to_bytes(NUMBER_BYTES, "big"))
        items.append(Item(unpack_body(packed), packed, call.max_attempts, id=str(id)))
    return Publish(call.tenant, call.queue, items, call.max_depth)


def check(call: Load) -> None:
    """Refuse a call that breaks its contract."""
    numbers, starts, size = call.numbers, call.starts, len(call.bodies)
    if len(call.stem) != 11 or call.stem[6] >> 4 != 8 or call.stem[8] >> 6 != 2:
        raise InvalidMessage("the stem must be the first 11 bytes of a UUIDv8", field="stem")
    if not numbers or numbers[0] < 0 or numbers[-1] >= 1 << 8 * NUMBER_BYTES or not _grow(numbers, strictly=True):
        raise InvalidMessage("numbers must grow and be below 2^40", field="numbers")
    if len(starts) != len(numbers) + 1 or len(call.types) != len(numbers):
        raise InvalidMessage("there must be a body and a type for each number", field="bodies")
    if starts[0] < 0 or starts[-1] > size or size >> 31 or not _grow(starts, strictly=False):
        raise InvalidMessage("bodies must follow each other, in less than 2 GB", field="starts")


def _grow(values: Sequence[int], *, strictly: bool) -> bool:
    if isinstance(values, range):
        return values.step > 0
    return all(map(operator.lt if strictly else operator.le, values, itertools.islice(values, 1, None)))
