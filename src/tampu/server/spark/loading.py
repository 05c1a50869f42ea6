"""Messages that a Spark job has packed, checked again: a server believes nobody.

A body is unpacked, goes through the same checks as any publish, by the queue's settings as they are here, and is packed
anew. Only the ids are the client's: they are what makes a job that is run again find what it has stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tampu.broker import incoming
from tampu.broker.settings import Settings
from tampu.engines.port import Call, Item, Load, Publish
from tampu.model.errors import InvalidMessage
from tampu.model.message import JSON, Body, NewMessage, unpack_body
from tampu.model.times import moment
from tampu.spark import rows
from tampu.spark.publishing import message_id
from tampu.spark.stores.wire import SparkItem, SparkLoad, SparkPublish
from tampu.wire.bodies import checked_json

_STEM = 11
_APART = frozenset({"payload", "content_type", "deadline", "own_max_attempts", "dead_at_deadline"})
_SAME = tuple(name for name in Body.__struct_fields__ if name not in _APART)


def load(tenant: str, given: SparkLoad, settings: Settings, remember_us: int) -> Call:
    incoming.check_open(given.queue, settings)
    stem, numbers, starts = given.stem, given.numbers, given.starts
    if len(stem) != _STEM or stem[6] >> 4 != 8 or stem[8] >> 6 != 2:
        raise InvalidMessage("the stem is not the beginning of a UUIDv8", field="stem")
    if any(after <= before for before, after in itertools.pairwise(numbers)):
        raise InvalidMessage("numbers must grow", field="numbers")
    if len(starts) != len(numbers) + 1 or starts[0] != 0 or starts[-1] != len(given.bodies) or starts != sorted(starts):
        raise InvalidMessage("starts must say where each body begins, and where the last one ends", field="starts")
    items = [
        _item(given.queue, settings, SparkItem(message_id(stem, number), given.bodies[low:high], settings.max_attempts))
        for number, (low, high) in zip(numbers, itertools.pairwise(starts), strict=True)
    ]
    if not all(rows.is_plain(item, settings) for item in items):
        return Publish(tenant, given.queue, items, settings.max_depth, remember_us=remember_us)
    places = [0]
    for item in items:
        places.append(places[-1] + len(item.packed))
    return Load(
        tenant, given.queue, stem, numbers, b"".join(item.packed for item in items), places,
        [item.body.type for item in items], settings.max_attempts, settings.max_depth, remember_us,
    )  # fmt: skip


def publish(tenant: str, given: SparkPublish, settings: Settings, remember_us: int) -> Call:
    incoming.check_open(given.queue, settings)
    items = [_item(given.queue, settings, one) for one in given.items]
    return Publish(tenant, given.queue, items, settings.max_depth, remember_us=remember_us)


def _item(queue: str, settings: Settings, given: SparkItem) -> Item:
    try:
        body = unpack_body(given.body)
        new = NewMessage(
            body.payload,
            content_type=body.content_type,
            deadline=None if body.deadline is None else moment(body.deadline),
            run_at=None if given.run_us is None else moment(given.run_us),
            delay=None if given.delay_us is None else timedelta(microseconds=given.delay_us),
            ttl=None if not given.ttl_us else timedelta(microseconds=given.ttl_us),
            # As the job found it in the queue's settings, or as its row says.
            max_attempts=body.own_max_attempts if given.max_attempts == settings.max_attempts else given.max_attempts,
            id=given.id,
            **{name: getattr(body, name) for name in _SAME},
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
        raise InvalidMessage(f"a body can not be unpacked: {error}", field="body") from None
    if body.content_type == JSON:
        checked_json(body.payload)
    return incoming.item(queue, settings, new)


def count(changes: Sequence[Any]) -> int:
    """How many messages changes bring."""
    return sum(
        len(one.numbers) if isinstance(one, SparkLoad) else len(one.items) if isinstance(one, SparkPublish) else 0
        for one in changes
    )
