"""load: store many plain messages under ids of their own, without making an object of any.

Contract: a call is all or nothing; refuses with QueueFull. A message whose id is there already is left as it is. The
others become ready in their order, as one run of odd sequence numbers.

The bodies are bound as one value and cut by SQLite: a row costs some 2.6 µs, the index of ids included, where a row of
`executemany` costs 4.8 (and a bare insert of two columns 2.9).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

from tampu.engines.encoding import READY
from tampu.engines.load import NUMBER_BYTES, check
from tampu.engines.port import Load
from tampu.engines.rules import full
from tampu.engines.sqlite import ids, ready
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.publish_with_lookup import depth
from tampu.model.errors import TampuError

# A place is where the body begins, shifted, and its length: json_each has one value a row.
_SHIFT = 31
INSERT = (
    "INSERT INTO tampu_message (seq, q, rank, created, max_attempts, id, body)"
    " SELECT ?1 + 2 * key, ?2, 0, ?3, ?4, substr(?5, 16 * key + 1, 16),"
    " substr(?6, (value >> 31) + 1, value & 0x7fffffff) FROM json_each(?7)"
)
KNOWN = "SELECT id, q FROM tampu_message WHERE id BETWEEN ? AND ?"


def load(commit: Commit, calls: Sequence[Load]) -> list[int | TampuError]:
    replies: list[int | TampuError] = []
    for call in calls:
        try:
            replies.append(_load(commit, call))
        except TampuError as error:
            replies.append(error)
    return replies


def _load(commit: Commit, call: Load) -> int:
    check(call)
    numbers, starts = call.numbers, call.starts
    known = _known(commit, call)
    every = range(len(numbers))
    chosen: Sequence[int] = every
    if known:
        chosen = [i for i in every if numbers[i] not in known]
        if not chosen:
            return 0
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if call.max_depth and (0 if q is None else depth(commit, q)) + len(chosen) > call.max_depth:
        raise full(call)
    if q is None:
        q = commit.queue(call.tenant, call.queue)
    first = commit.numbers(len(chosen))[0] + 1
    last = first + (len(chosen) - 1) * ids.STEP
    ends = struct.pack(f">{len(chosen)}Q", *(numbers if chosen is every else [numbers[i] for i in chosen]))
    places = [start << _SHIFT | end - start for start, end in itertools.pairwise(starts)]
    if chosen is not every:
        places = [places[i] for i in chosen]
    commit.db.execute(
        INSERT, (first, q, commit.now, call.max_attempts, _ids(call.id_prefix, ends), call.bodies, f"{places}")
    )
    ready.enter(commit.db, [(q, 0, first, first, 0, None, last)])
    seqs = list(range(first, last + 1, ids.STEP))
    record = commit.record("publish", q, READY)
    record.extend(seqs, [0] * len(seqs), [call.types[i] for i in chosen] if known else list(call.types))
    start, text = ids.id_text(call.id_prefix + bytes(NUMBER_BYTES))[: -2 * NUMBER_BYTES], ends.hex()
    record.ids.update(zip(seqs, [start + text[at : at + 10] for at in range(6, len(text), 16)], strict=True))
    commit.count(q, READY, len(seqs))
    commit.became_ready(q, len(seqs))
    return len(seqs)


def _ids(id_prefix: bytes, numbers: bytes) -> bytearray:
    """The stem and the last five bytes of each number, without a step of Python for each."""
    count = len(numbers) // 8
    own = bytearray(16 * count)
    for place, value in enumerate(id_prefix):
        own[place::16] = bytes((value,)) * count
    for place in range(NUMBER_BYTES):
        own[11 + place :: 16] = numbers[3 + place :: 8]
    return own


def _known(commit: Commit, call: Load) -> set[int]:
    """The numbers whose messages are there already; other tenants' messages do not count."""
    low, high = (call.id_prefix + n.to_bytes(NUMBER_BYTES, "big") for n in (call.numbers[0], call.numbers[-1]))
    return {
        int.from_bytes(id[-NUMBER_BYTES:], "big")
        for id, q in commit.db.execute(KNOWN, (low, high)).fetchall()
        if commit.registry.name(commit.db, q)[0] == call.tenant
    }
