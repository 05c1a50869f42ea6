"""Plain batches: messages that have a JSON payload, one type and nothing else, as columns.

Most batches are plain, and most steps can work on them as a whole: what they look at is computed once a batch, and the
items are made once, after all steps. So a step costs a fraction of what it costs with a draft for each message. A step
that cannot do it says so, and the batch goes through all steps again as drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.broker import validate
from tampu.broker.publish_steps import ADDED, STEPS, SettingsOf
from tampu.broker.settings import Settings
from tampu.engines.port import Ending, Item
from tampu.model.message import JSON, Body
from tampu.model.values import pack_pairs

Pairs = tuple[dict[str, str] | None, dict[str, str] | None]
"""Headers and labels."""
_MISSING = object()


class PlainBatch:
    """The messages of one publish call to a queue in which every one may be ready at once (`Settings.simple`)."""

    def __init__(self, queue: str, settings: Settings, payloads: validate.Payloads, settings_of: SettingsOf) -> None:
        self.queue = queue
        self.settings = settings
        self.type = payloads.type
        self.raws = payloads.raws
        self.values = payloads.values
        """The payloads, decoded. Do not change them."""
        self.largest = max(map(len, self.raws))
        """Bytes of the largest payload."""
        self.settings_of = settings_of
        self.pairs: list[Pairs] = [(None, None)] * len(self.raws)
        """Headers and labels of each."""
        self.ends: Ending | None = None
        """Set if all of them are stored as ended."""
        self.copies: list[tuple[str, Sequence[int] | None]] = []
        """Queues that get copies under ids of the store, and of which messages; None: of all."""
        self._made: list[tuple[Body, bytes]] = []
        self._copied: dict[tuple[int, int, str], list[Item]] = {}

    def column(self, path: tuple[str, ...]) -> list[Any]:
        """A field inside of each payload; an object that equals nothing else where there is none."""
        found: list[Any] = list(self.values)
        for name in path:
            found = [value.get(name, _MISSING) if type(value) is dict else _MISSING for value in found]
        return found

    def run(self) -> bool:
        """Apply the steps. False if one of them needs drafts."""
        queue, settings = self.queue, self.settings
        if ADDED and any(step.wants(queue, settings) for step in ADDED):
            return False
        return all(step.apply_plain(self) for step in STEPS if step.wants(queue, settings))

    def items(self) -> list[Item]:
        """The items of the queue."""
        kind, settings = self.type, self.settings
        if not self._made:
            for headers, labels in {id(pair): pair for pair in self.pairs}.values():
                validate.pairs(headers, "headers")
                validate.pairs(labels, "labels")
            self._made = [
                (Body(kind, raw, JSON, 0, headers, labels), pack_pairs(kind, raw, JSON, headers, labels))
                for raw, (headers, labels) in zip(self.raws, self.pairs, strict=True)
            ]
        attempts, ordering = settings.max_attempts, settings.ordering
        if self.ends is None:
            return [Item(body, packed, attempts, ordering) for body, packed in self._made]
        return [Item(body, packed, attempts, ordering, ends=self.ends) for body, packed in self._made]

    def copied_items(self, queue: str, chosen: Sequence[int] | None) -> list[Item]:
        """The items of copies, as their queue gets them; the same list for queues that get the same."""
        settings = self.settings_of(queue)
        validate.check_open(queue, settings)
        same = id(chosen), settings.max_attempts, settings.ordering
        if same not in self._copied:
            made = self._made if chosen is None else [self._made[at] for at in chosen]
            self._copied[same] = [Item(*one, settings.max_attempts, settings.ordering) for one in made]
        return self._copied[same]
