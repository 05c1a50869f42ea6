"""settle and extend: what the holder of a lease may do.

All items of a queue, of all callers, are one script; a batch of simple acks has a script of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tampu.engines.port import Extend, Extended, Settle, SettleItem
from tampu.engines.redis import ids, rows
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall
from tampu.engines.redis.queue_registry import QueueEntry, RunContext
from tampu.engines.rules import first_line, lost
from tampu.model.errors import TampuError
from tampu.model.outcome import Outcome

_VERBS = {"ack": "a", "nack": "n", "reject": "x", "release": "r"}
MAX_MERGED = 2000
_NUMBERS = re.compile(r"[0-9a-f]+")
_LEASE = re.compile(r"[0-7]?[0-9a-f]{1,15}")
ExtendItem = tuple[str, str, int, str | None]
"""(number of the message, lease, microseconds, id that it must have)"""


class Batch:
    """Items of one queue, and the positions of their outcomes."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.items: list[SettleItem] = []
        self.seqs: list[str] = []
        self.leases: list[str] = []
        self.simple = True

    def add(self, position: int, item: SettleItem, seq: str, lease: str) -> None:
        self.positions.append(position)
        self.items.append(item)
        self.seqs.append(seq)
        self.leases.append(lease)
        self.simple = self.simple and item.verb == "ack" and (item.result is None or not item.result_ttl_us)

    def answer(self, outcomes: list[Any], answers: list[Outcome]) -> None:
        for position, outcome in zip(self.positions, answers, strict=True):
            outcomes[position] = outcome


def settle(context: RunContext, calls: Sequence[Settle]) -> Operation[list[list[Outcome] | TampuError]]:
    replies = yield from _settle(context, calls)
    for call, outcomes in zip(calls, replies, strict=True):
        for queue, count in call.freed(outcomes).items():
            context.became_ready((call.tenant, queue), count)
    return list(replies)


def _settle(context: RunContext, calls: Sequence[Settle]) -> Operation[list[list[Outcome]]]:
    claimed = _acks_of_one_claim(calls[0]) if len(calls) == 1 else None
    if claimed is not None:
        return [(yield from _ack_claim(context, calls[0], *claimed))]
    outcomes: list[Any] = []
    batches: dict[tuple[str, str], list[Batch]] = {}
    for call in calls:
        for item in call.items:
            outcomes.append(_sort(batches, call.tenant, item, len(outcomes)))
    batches_sent: list[tuple[QueueEntry, Batch]] = []
    for (tenant, queue), queue_batches in batches.items():
        entry = yield from context.registry.find(tenant, queue)
        for batch in queue_batches:
            if entry is not None:
                batches_sent.append((entry, batch))
            else:
                batch.answer(outcomes, [Outcome(None, None, lost())] * len(batch.items))
    if batches_sent:
        replies = yield [
            (_ack_call if batch.simple else settle_call)(context, entry, batch) for entry, batch in batches_sent
        ]
        for (entry, batch), reply in zip(batches_sent, replies, strict=True):
            if isinstance(reply, TampuError):
                batch.answer(outcomes, [Outcome(None, None, reply)] * len(batch.items))
            else:
                outcomes_of = _ack_outcomes if batch.simple else settle_outcomes
                batch.answer(outcomes, outcomes_of(entry, batch, context.read_reply(entry, reply)))
    all_outcomes = iter(outcomes)
    return [[next(all_outcomes) for _ in call.items] for call in calls]


def _sort(batches: dict[tuple[str, str], list[Batch]], tenant: str, item: SettleItem, position: int) -> Outcome | None:
    """Put an item into a batch of its queue. Returns the outcome if its receipt is not valid."""
    try:
        seq, lease = rows.parse_receipt(item.receipt)
    except TampuError as error:
        return Outcome(None, None, error)
    queue_batches = batches.setdefault((tenant, item.queue), [Batch()])
    if len(queue_batches[-1].items) >= MAX_MERGED:
        queue_batches.append(Batch())
    queue_batches[-1].add(position, item, seq, lease)
    return None


def _acks_of_one_claim(call: Settle) -> tuple[str, str] | None:
    """(concatenated numbers, lease) if these are simple acks of one claim, as a batch worker sends them; else None."""
    if not call.items:
        return None
    queue = call.items[0].queue
    lease = call.items[0].receipt.rpartition(".")[2]
    begin, end = f"{queue}/", f".{lease}"
    start, stop = len(begin), -len(end)
    seqs = []
    for item in call.items:
        text = item.receipt
        if item.verb != "ack" or item.result is not None or not (text.startswith(begin) and text.endswith(end)):
            return None
        seqs.append(text[start:stop])
    numbers = "".join(seqs)
    valid = _NUMBERS.fullmatch(numbers) and _LEASE.fullmatch(lease) and all(len(seq) == ids.DIGITS for seq in seqs)
    return (numbers, lease) if valid and len(seqs) <= MAX_MERGED else None


def _ack_claim(context: RunContext, call: Settle, numbers: str, lease: str) -> Operation[list[Outcome]]:
    entry = yield from context.registry.find(call.tenant, call.items[0].queue)
    if entry is None:
        return [Outcome(None, None, lost()) for _ in call.items]
    (reply,) = yield [context.write.script("ack", entry.tag, numbers, rows.encode(lease))]
    if isinstance(reply, TampuError):
        return [Outcome(None, None, reply)] * len(call.items)
    answers = context.read_reply(entry, reply)
    done = rows.STATES[rows.DONE]
    letters, *own = answers
    if not own and letters.count(b"d") == len(call.items) and all(item.id for item in call.items):
        return [Outcome(item.id, done) for item in call.items]
    batch = Batch()
    for i, item in enumerate(call.items):
        batch.add(i, item, numbers[16 * i : 16 * i + 16], lease)
    return _ack_outcomes(entry, batch, answers)


def _ack_call(context: RunContext, entry: QueueEntry, batch: Batch) -> ScriptCall:
    leases = batch.leases
    lease_or_list: Any = leases[0] if leases.count(leases[0]) == len(leases) else leases
    return context.write.script("ack", entry.tag, "".join(batch.seqs), rows.encode(lease_or_list))


def _ack_outcomes(entry: QueueEntry, batch: Batch, reply: list[Any]) -> list[Outcome]:
    letters, *given = reply
    own = dict(zip(given[::2], given[1::2], strict=True))
    done = rows.STATES[rows.DONE]
    outcomes = []
    for i, (item, seq) in enumerate(zip(batch.items, batch.seqs, strict=True)):
        if letters[i] == 100:  # d
            id = item.id or (own[i + 1].decode() if own and i + 1 in own else entry.ids.of(seq))
            outcomes.append(Outcome(id, done))
        else:
            outcomes.append(Outcome(None, None, lost()))
    return outcomes


def settle_call(context: RunContext, entry: QueueEntry, batch: Batch) -> ScriptCall:
    tables: dict[tuple[int, ...], int] = {}
    items = []
    results: list[bytes] = []
    for item, seq, lease in zip(batch.items, batch.seqs, batch.leases, strict=True):
        packed: dict[str, Any] = {"v": _VERBS[item.verb], "s": seq, "l": lease}
        if item.verb in ("nack", "release") and item.delay_us is not None:
            packed["d"] = item.delay_us + 0
        elif item.verb == "nack":
            packed["t"], packed["f"] = tables.setdefault(item.delays, len(tables) + 1), item.spread + 0.0
        if item.max_attempts is not None:
            packed["m"] = item.max_attempts
        if item.verb == "ack" and item.result is not None and item.result_ttl_us:
            results.append(item.result)
            packed["b"], packed["bt"] = len(results), item.result_ttl_us + 0
        for name, value in (
            ("y", item.reason),
            ("e", item.error),
            ("w", item.traceback),
            ("g", first_line(item.error)),
            ("h", item.hold),
        ):
            if value is not None:
                packed[name] = value
        items.append(packed)
    return context.write.script("settle", entry.tag, rows.encode(list(tables)), rows.encode(items), *results)


def settle_outcomes(entry: QueueEntry, batch: Batch, reply: list[Any]) -> list[Outcome]:
    return [
        Outcome(None, None, lost())
        if code < 0
        else Outcome(item.id or (own[0].decode() if own[0] else entry.ids.of(seq)), rows.STATES[code])
        for item, seq, (code, *own) in zip(batch.items, batch.seqs, reply, strict=True)
    ]


def extend(context: RunContext, call: Extend) -> Operation[list[Extended | TampuError]]:
    """Extend leases to the given time from now."""
    answers: list[Any] = []
    batches: dict[str, list[tuple[int, ExtendItem]]] = {}
    for n, (queue, _, _) in enumerate(call.items):
        answers.append(lost())
        try:
            batches.setdefault(queue, []).append((n, extend_item(call, n)))
        except TampuError as error:
            answers[-1] = error
    for queue, items in batches.items():
        entry = yield from context.registry.find(call.tenant, queue)
        if entry is not None:
            own = [(position, item) for position, item in items if may_be(entry, item)]
            (reply,) = yield [context.write.script("extend", entry.tag, rows.encode([item for _, item in own]))]
            if isinstance(reply, TampuError):
                for position, _ in own:
                    answers[position] = reply
                continue
            for (position, _), (until, *cancel) in zip(own, context.read_reply(entry, reply), strict=True):
                if until:
                    answers[position] = Extended(until, any(cancel))
    return answers


def extend_item(call: Extend, n: int) -> ExtendItem:
    """One item for the script. Raises if its receipt is not valid."""
    _, receipt, lease_us = call.items[n]
    return (*rows.parse_receipt(receipt), lease_us + 0, call.ids[n] if call.ids else None)


def may_be(entry: QueueEntry, item: ExtendItem) -> bool:
    """False if this is not the number of the message with this id. Ids that users gave are compared by the script."""
    seq, _, _, id = item
    return id is None or ids.is_own(seq) or entry.ids.of(seq) == id
