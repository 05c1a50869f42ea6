"""How states, lists of sequence numbers and receipts are written down."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

from tampu.model.errors import InvalidMessage
from tampu.model.states import LIVE, State

STATES = tuple(State)
READY, DELAYED, LEASED, HELD, DONE, DEAD, CANCELLED, EXPIRED = range(8)
CODE = {state: code for code, state in enumerate(STATES)}
LIVE_KINDS = tuple(CODE[state] for state in LIVE)

_RECEIPT = re.compile(r"/([0-7]?[0-9a-f]{1,15})\.([0-7]?[0-9a-f]{1,15})\Z")  # two numbers of 63 bits


def pack_seqs(seqs: Sequence[int]) -> bytes:
    """Eight bytes a number; numbers at even distances, as a batch mostly has them, are 20 bytes however many."""
    if len(seqs) > 2:
        step = seqs[1] - seqs[0]
        if step and seqs[-1] - seqs[0] == step * (len(seqs) - 1):
            even = range(seqs[0], seqs[-1] + (1 if step > 0 else -1), step)
            if list(even) == list(seqs):
                return struct.pack(">qqI", seqs[0], step, len(seqs))
    return struct.pack(f">{len(seqs)}q", *seqs)


def unpack_seqs(raw: bytes) -> Sequence[int]:
    if len(raw) == 20:
        first, step, count = struct.unpack(">qqI", raw)
        return range(first, first + step * count, step)
    return struct.unpack(f">{len(raw) // 8}q", raw)


def as_json(seqs: Iterable[int]) -> str:
    """A list of numbers for ``json_each``: one statement moves a whole batch."""
    return f"[{','.join(map(str, seqs))}]"


def parse_receipt(text: str) -> tuple[int, int]:
    """(seq, lease) of a receipt, which is ``queue/seq.lease`` in hexadecimal."""
    found = _RECEIPT.search(text)
    if not found:
        raise InvalidMessage("this is not a receipt", field="receipt", hint="pass the receipt that claim gave")
    seq, lease = found.groups()
    return int(seq, 16), int(lease, 16)
