"""Reads the journal: a stream per queue, one entry per script, verb and state, returned as one transition per message.

Each queue is a partition with its own offsets, without gaps. A page merges the partitions by time. Its position is the
offset reached in each, so pages of any size give the same transitions in the same order.
"""

from __future__ import annotations

import heapq
from typing import Any

from tampu.engines.encoding import fingerprint
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall, ok
from tampu.engines.redis.ids import cut, series
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.model.errors import InvalidMessage
from tampu.model.journal import JournalPage, Position, Transition

_LEAST, _MOST = 16, 1000


class _Partition:
    """One queue's journal, read from an offset on, some entries at a time."""

    def __init__(self, entry: QueueEntry, offset: int, end: int, count: int) -> None:
        self.entry = entry
        self.offset = offset
        self.end = end
        self.count = count
        self.rows: list[Transition] = []
        self.more = end > offset
        self._read = offset

    def read_call(self, registry: QueueRegistry) -> ScriptCall:
        return registry.write.plain("XRANGE", self.entry.tag, "j", f"{self._read + 1}-0", "+", "COUNT", self.count)

    def take(self, entries: list[Any]) -> None:
        self.rows = []
        for id, fields in entries:
            last, _, n = id.decode().partition("-")
            _, at, _, packed = fields
            found = _unfold(self.entry, int(last), int(n), int(at), packed)
            self.rows += found[max(0, self._read - found[0].offset + 1) :]
            self._read = int(last)
        self.rows.reverse()  # so that pop() gives the next one
        self.more = len(entries) == self.count
        if not self.more and not self.rows:
            self.offset = max(self.offset, self.end)  # skip entries that retention has removed


def read(registry: QueueRegistry, after: Position | None, limit: int, tenant: str | None) -> Operation[JournalPage]:
    position = _checked(after)
    entries = yield from registry.all(tenant)
    ends: list[Any] = (yield [registry.write.plain("HGET", r.tag, "n", "end") for r in entries]) if entries else []
    count = min(limit, max(_LEAST, min(_MOST, limit // max(1, len(entries)))))
    partitions = [
        _Partition(entry, position.get(entry.partition, 0), int(end), count)
        for entry, end in zip(entries, ends, strict=True)
        if ok(end) is not None
    ]
    behind = [p for p in partitions if p.more]
    if behind:
        for partition, reply in zip(behind, (yield [p.read_call(registry) for p in behind]), strict=True):
            partition.take(ok(reply))
    heads = [(p.rows[-1].at_us, i) for i, p in enumerate(partitions) if p.rows]
    heapq.heapify(heads)
    found: list[Transition] = []
    while heads and len(found) < limit:
        _, i = heapq.heappop(heads)
        partition = partitions[i]
        transition = partition.rows.pop()
        found.append(transition)
        partition.offset = transition.offset
        if not partition.rows and partition.more:
            (reply,) = yield [partition.read_call(registry)]
            partition.take(ok(reply))
        if partition.rows:
            heapq.heappush(heads, (partition.rows[-1].at_us, i))
        elif not partition.more:
            partition.offset = max(partition.offset, partition.end)
    return JournalPage(
        transitions=found,
        position={p.entry.partition: p.offset for p in partitions},
        latest={p.entry.partition: max(p.end, p.offset) for p in partitions},
    )


def _checked(after: Position | None) -> Position:
    """Partition "0" is that of other engines; here only its offset 0, the beginning, is valid."""
    position = {name: offset for name, offset in (after or {}).items() if offset or name != "0"}
    if any("/" not in name for name in position):
        raise InvalidMessage(
            "after is not a position of this journal", field="after", hint="pass the position of the page before"
        )
    return position


def _own_ids(own: Any, count: int) -> list[str]:
    if isinstance(own, str):
        return [own[:26] + own[i : i + 10] for i in range(26, len(own), 10)]
    return own or [""] * count


def _unfold(entry: QueueEntry, last: int, count: int, at: int, packed: bytes) -> list[Transition]:
    verb, state, worker, seqs, attempts, types, details, own = rows.decode(packed)
    made = entry.ids.many(series(*seqs) if isinstance(seqs, list) else cut(seqs))
    own = _own_ids(own, count)
    return [
        Transition(
            offset=last - count + 1 + i,
            at_us=at,
            tenant=entry.tenant,
            queue=entry.queue,
            verb=verb,
            id=own[i] or made[i],
            state=None if state is False else rows.STATES[state],
            attempt=attempts[i] if isinstance(attempts, list) else attempts,
            type=(types[i] if isinstance(types, list) else types) or None,
            worker=worker or None,
            detail=(details[i] or None) if details else None,
            fingerprint=fingerprint(details[i]) if details and details[i] else None,
            partition=entry.partition,
        )
        for i in range(count)
    ]
