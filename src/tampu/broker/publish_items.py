"""The items of messages that went through the publish steps as drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.publish_steps import PAIRS, STORY, Draft, SettingsOf
from tampu.engines.port import Item
from tampu.model.message import Body
from tampu.model.values import has_pairs_only, pack_body, pack_pairs


class Items:
    """Makes the items of messages that went through the steps. Most steps change nothing, or headers and labels."""

    def __init__(self, queue: str, settings_of: SettingsOf) -> None:
        self._queue = queue
        self._settings_of = settings_of
        self._checked: Any = None
        """The last headers and labels that were checked."""
        self.simple = True
        """False as soon as an item was made that a simple batch cannot have, if its origin can be in one."""
        self._made: dict[int, Item] = {}
        """The items of messages that end, by the identity of the draft: as their copies have them."""
        self._spread: dict[tuple[int, int, str], list[Item]] = {}
        """By the identity of the list of drafts, and what the items have from their queue."""

    def of(self, draft: Draft) -> Item:
        item = draft.origin
        if draft.queue == self._queue and draft.changes.keys() <= STORY:
            if not PAIRS.isdisjoint(draft.changes):
                item = self._with_pairs(draft)
            if "correlation_id" in draft.changes:
                body = msgspec.structs.replace(item.body, correlation_id=draft.changes["correlation_id"])
                item = msgspec.structs.replace(item, body=body, packed=pack_body(body))
        else:
            item = self._rebuilt(draft)
        if draft.ends is not None:
            self.simple = False
            self._made[id(draft)] = item
            return msgspec.structs.replace(item, ends=draft.ends)
        return item

    def _with_pairs(self, draft: Draft) -> Item:
        """The item with other headers and labels. All messages of a batch often get the same ones."""
        origin, changes = draft.origin, draft.changes
        body, packed = origin.body, origin.packed
        headers, labels = changes.get("headers", body.headers), changes.get("labels", body.labels)
        if (headers, labels) != self._checked:
            validate.pairs(headers, "headers")
            validate.pairs(labels, "labels")
            self._checked = headers, labels
        headers, labels = headers or None, labels or None
        if has_pairs_only(packed):
            packed = pack_pairs(body.type, body.payload, body.content_type, headers, labels)
            body = Body(body.type, body.payload, body.content_type, 0, headers, labels)
        else:
            body = msgspec.structs.replace(body, headers=headers, labels=labels)
            packed = pack_body(body)
        return msgspec.structs.replace(origin, body=body, packed=packed)

    def _rebuilt(self, draft: Draft) -> Item:
        """The item of a message that steps have changed. Its idempotency key still stands for the original message."""
        settings = self._settings_of(validate.any_queue(draft.queue))
        validate.check_open(draft.queue, settings)
        item = validate.item(draft.queue, settings, draft.message)
        self.simple = self.simple and settings.simple and item.id is None and validate.is_simple(item)
        if item.digest is None:
            return item
        return msgspec.structs.replace(item, digest=draft.origin.digest, window_us=draft.origin.window_us)

    def spread(self, queue: str, drafts: Sequence[Draft]) -> Sequence[Item]:
        """The items of plain messages, as ``queue`` gets them. Bodies are shared."""
        settings = self._settings_of(queue)
        validate.check_open(queue, settings)
        same = (id(drafts), settings.max_attempts, settings.ordering)
        if same not in self._spread:
            made = [self._made[id(draft)] for draft in drafts]
            self._spread[same] = [
                Item(item.body, item.packed, settings.max_attempts, settings.ordering) for item in made
            ]
        return self._spread[same]
