"""settle and extend: what the holder of a lease may do.

Contract: one outcome per item. A receipt that is not the current lease of its message changes nothing and gives
LeaseLost, except when it is the very receipt that brought the message where it is, in the same way: then the answer is
the same again. All items of a queue, of all callers, are one script; a batch of plain acks has one of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tampu.engines.port import Extend, Extended, Settle, SettleItem
from tampu.engines.redis import ids, rows
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall
from tampu.engines.rules import first_line
from tampu.model.errors import TampuError
from tampu.model.outcome import Outcome

_VERBS = {"ack": "a", "nack": "n", "reject": "x", "release": "r"}
MOST_TOGETHER = 2000
_NUMBERS = re.compile(r"[0-9a-f]+")
_LEASE = re.compile(r"[0-7]?[0-9a-f]{1,15}")


class Group:
    """Items of one queue, with where their answers go."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.items: list[SettleItem] = []
        self.seqs: list[str] = []
        self.leases: list[str] = []
        self.plain = True

    def add(self, place: int, item: SettleItem, seq: str, lease: str) -> None:
        self.places.append(place)
        self.items.append(item)
        self.seqs.append(seq)
        self.leases.append(lease)
        self.plain = self.plain and item.verb == "ack" and (item.result is None or not item.result_ttl_us)

    def answer(self, outcomes: list[Any], answers: list[Outcome]) -> None:
        for place, outcome in zip(self.places, answers, strict=True):
            outcomes[place] = outcome


def settle(context: RunContext, calls: Sequence[Settle]) -> Asking[list[list[Outcome] | TampuError]]:
    replies = yield from _settle(context, calls)
    for call, outcomes in zip(calls, replies, strict=True):
        for queue, count in call.freed(outcomes).items():
            context.became_ready((call.tenant, queue), count)
    return list(replies)


def _settle(context: RunContext, calls: Sequence[Settle]) -> Asking[list[list[Outcome]]]:
    whole = _one_claim(calls[0]) if len(calls) == 1 else None
    if whole is not None:
        return [(yield from _ack_claim(context, calls[0], *whole))]
    outcomes: list[Any] = []
    groups: dict[tuple[str, str], list[Group]] = {}
    for call in calls:
        for item in call.items:
            outcomes.append(_sort(groups, call.tenant, item, len(outcomes)))
    asked: list[tuple[QueueEntry, Group]] = []
    for (tenant, queue), line in groups.items():
        room = yield from context.registry.known(tenant, queue)
        for group in line:
            if room is not None:
                asked.append((room, group))
            else:
                group.answer(outcomes, [Outcome(None, None, rows.lease_lost())] * len(group.items))
    if asked:
        replies = yield [_acks(context, *one) if one[1].plain else ask(context, *one) for one in asked]
        for (room, group), reply in zip(asked, replies, strict=True):
            if isinstance(reply, TampuError):
                group.answer(outcomes, [Outcome(None, None, reply)] * len(group.items))
            else:
                group.answer(outcomes, (_acked if group.plain else settled)(room, group, context.heard(room, reply)))
    given = iter(outcomes)
    return [[next(given) for _ in call.items] for call in calls]


def _sort(groups: dict[tuple[str, str], list[Group]], tenant: str, item: SettleItem, place: int) -> Outcome | None:
    """Put an item into the group of its queue; the outcome of one that has no receipt."""
    try:
        seq, lease = rows.parse_receipt(item.receipt)
    except TampuError as error:
        return Outcome(None, None, error)
    line = groups.setdefault((tenant, item.queue), [Group()])
    if len(line[-1].items) >= MOST_TOGETHER:
        line.append(Group())
    line[-1].add(place, item, seq, lease)
    return None


def _one_claim(call: Settle) -> tuple[str, str] | None:
    """(numbers in a row, lease) when these are plain acks of one claim, which is what a batch worker sends."""
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
    ours = _NUMBERS.fullmatch(numbers) and _LEASE.fullmatch(lease) and all(len(seq) == ids.DIGITS for seq in seqs)
    return (numbers, lease) if ours and len(seqs) <= MOST_TOGETHER else None


def _ack_claim(context: RunContext, call: Settle, numbers: str, lease: str) -> Asking[list[Outcome]]:
    room = yield from context.registry.known(call.tenant, call.items[0].queue)
    if room is None:
        return [Outcome(None, None, rows.lease_lost()) for _ in call.items]
    (reply,) = yield [context.write.script("ack", room.tag, numbers, rows.encode(lease))]
    if isinstance(reply, TampuError):
        return [Outcome(None, None, reply)] * len(call.items)
    answers = context.heard(room, reply)
    done = rows.STATES[rows.DONE]
    if len(answers) == 3 and answers[2].count(b"d") == len(call.items) and all(item.id for item in call.items):
        return [Outcome(item.id, done) for item in call.items]
    group = Group()
    for i, item in enumerate(call.items):
        group.add(i, item, numbers[16 * i : 16 * i + 16], lease)
    return _acked(room, group, answers)


def _acks(context: RunContext, room: QueueEntry, group: Group) -> ScriptCall:
    leases = group.leases
    one: Any = leases[0] if leases.count(leases[0]) == len(leases) else leases
    return context.write.script("ack", room.tag, "".join(group.seqs), rows.encode(one))


def _acked(room: QueueEntry, group: Group, reply: list[Any]) -> list[Outcome]:
    letters = reply[2]
    own = dict(zip(reply[3::2], reply[4::2], strict=True))
    done = rows.STATES[rows.DONE]
    found = []
    for i, (item, seq) in enumerate(zip(group.items, group.seqs, strict=True)):
        if letters[i] == 100:  # d
            id = item.id or (own[i + 1].decode() if own and i + 1 in own else room.ids.of(seq))
            found.append(Outcome(id, done))
        else:
            found.append(Outcome(None, None, rows.lease_lost()))
    return found


def ask(context: RunContext, room: QueueEntry, group: Group) -> ScriptCall:
    tables: dict[tuple[int, ...], int] = {}
    items = []
    results: list[bytes] = []
    for item, seq, lease in zip(group.items, group.seqs, group.leases, strict=True):
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
        ):
            if value is not None:
                packed[name] = value
        items.append(packed)
    return context.write.script("settle", room.tag, rows.encode(list(tables)), rows.encode(items), *results)


def settled(room: QueueEntry, group: Group, reply: list[Any]) -> list[Outcome]:
    return [
        Outcome(None, None, rows.lease_lost())
        if code < 0
        else Outcome(item.id or (own[0].decode() if own[0] else room.ids.of(seq)), rows.STATES[code])
        for item, seq, (code, *own) in zip(group.items, group.seqs, reply[2:], strict=True)
    ]


def extend(context: RunContext, call: Extend) -> Asking[list[Extended | TampuError]]:
    """Leases run on for the time given, from now."""
    answers: list[Any] = []
    groups: dict[str, list[tuple[int, tuple[str, str, int]]]] = {}
    for queue, receipt, lease_us in call.items:
        answers.append(rows.lease_lost())
        try:
            groups.setdefault(queue, []).append((len(answers) - 1, (*rows.parse_receipt(receipt), lease_us + 0)))
        except TampuError as error:
            answers[-1] = error
    for queue, items in groups.items():
        room = yield from context.registry.known(call.tenant, queue)
        if room is not None:
            (reply,) = yield [context.write.script("extend", room.tag, rows.encode([item for _, item in items]))]
            if isinstance(reply, TampuError):
                for place, _ in items:
                    answers[place] = reply
                continue
            for (place, _), answer in zip(items, context.heard(room, reply)[2:], strict=True):
                if answer[0]:
                    answers[place] = Extended(answer[0], bool(answer[1]))
    return answers
