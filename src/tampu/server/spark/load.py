"""Messages packed by a Spark job, checked again, because a server cannot trust its clients.

A body is unpacked, checked like any publish against the queue's current settings, and packed again. Only the ids are
taken from the client: by them a repeated job finds what it has stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tampu.broker import publish as door
from tampu.broker import publish_steps, validate
from tampu.broker.publish_steps import SettingsOf
from tampu.broker.settings import Settings
from tampu.engines.port import Item
from tampu.model.errors import InvalidMessage
from tampu.model.message import JSON, unpack_body
from tampu.model.times import moment_or_none
from tampu.spark.write import rows
from tampu.spark.write.publish import Calls, message_id
from tampu.stores.wire import SparkItem, SparkLoad, SparkPublish
from tampu.wire.media import decode_part

_PREFIX_BYTES = 11


def load(tenant: str, given: SparkLoad, settings_of: SettingsOf, remember_us: int) -> Calls:
    settings = settings_of(given.queue)
    id_prefix, numbers, starts = given.id_prefix, given.numbers, given.starts
    if len(id_prefix) != _PREFIX_BYTES or id_prefix[6] >> 4 != 8 or id_prefix[8] >> 6 != 2:
        raise InvalidMessage("the id prefix is not the beginning of a UUIDv8", field="id_prefix")
    if any(after <= before for before, after in itertools.pairwise(numbers)):
        raise InvalidMessage("numbers must be increasing", field="numbers")
    if len(starts) != len(numbers) + 1 or starts[0] != 0 or starts[-1] != len(given.bodies) or starts != sorted(starts):
        raise InvalidMessage("starts must be the start of each body, and the end of the last", field="starts")
    return _calls(
        tenant, given.queue, settings_of, remember_us,
        [
            SparkItem(message_id(id_prefix, number), given.bodies[low:high], settings.max_attempts)
            for number, (low, high) in zip(numbers, itertools.pairwise(starts), strict=True)
        ],
        id_prefix, numbers,
    )  # fmt: skip


def publish(tenant: str, given: SparkPublish, settings_of: SettingsOf, remember_us: int) -> Calls:
    return _calls(tenant, given.queue, settings_of, remember_us, given.items)


def _calls(
    tenant: str,
    queue: str,
    settings_of: SettingsOf,
    remember_us: int,
    given: Sequence[SparkItem],
    id_prefix: bytes | None = None,
    numbers: Sequence[int] = (),
) -> Calls:
    settings = settings_of(queue)
    validate.check_open(queue, settings)
    items = [_item(queue, settings, item) for item in given]
    if publish_steps.wanted(queue, settings):
        prepared = door.prepare_items(tenant, queue, items, settings_of, remember_us=remember_us)
        return Calls(prepared.rows, prepared.copies)
    if id_prefix is None or not all(rows.is_plain(item, settings) for item in items):
        return Calls([door.publish_call(tenant, queue, settings, items, remember_us=remember_us)])
    starts = [0, *itertools.accumulate(len(item.packed) for item in items)]
    bodies, types = b"".join(item.packed for item in items), [item.body.type for item in items]
    return Calls(
        [door.load_call(tenant, queue, settings, id_prefix, numbers, bodies, starts, types, remember_us=remember_us)]
    )


def _item(queue: str, settings: Settings, given: SparkItem) -> Item:
    try:
        body = unpack_body(given.body)
        new = validate.from_body(
            body,
            run_at=moment_or_none(given.run_us),
            delay=None if given.delay_us is None else timedelta(microseconds=given.delay_us),
            ttl=None if not given.ttl_us else timedelta(microseconds=given.ttl_us),
            # Equal to the queue's: then the row had none, unless its body has its own.
            max_attempts=body.own_max_attempts if given.max_attempts == settings.max_attempts else given.max_attempts,
            id=given.id,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
        raise InvalidMessage(f"cannot unpack a body: {error}", field="body") from None
    if body.review is not None:
        raise InvalidMessage("rows of Spark have no review", field="body")
    if body.content_type == JSON:
        decode_part(body.payload, JSON, len(body.payload), "payload")
    return validate.item(queue, settings, new)


def count(changes: Sequence[Any]) -> int:
    """The number of messages in changes."""
    return sum(
        len(change.numbers)
        if isinstance(change, SparkLoad)
        else len(change.items)
        if isinstance(change, SparkPublish)
        else 0
        for change in changes
    )
