"""How states, lists of sequence numbers, receipts and errors are written down. The same in all engines."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence

from tampu.model.errors import InvalidMessage
from tampu.model.states import LIVE, State

STATES = tuple(State)
READY, DELAYED, LEASED, HELD, DONE, DEAD, CANCELLED, EXPIRED = range(8)
CODE = {state: code for code, state in enumerate(STATES)}
LIVE_KINDS = tuple(CODE[state] for state in LIVE)

PARTITION = "0"
"""The partition of a journal that has only one."""
MOST_RECORDS = 10_000
"""Records read for one page, so that a page costs the same when most of the journal belongs to other tenants."""

_RECEIPT = re.compile(r"/([0-7]?[0-9a-f]{1,15})\.([0-7]?[0-9a-f]{1,15})\Z")  # two numbers of 63 bits
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+|'[^']*'|\"[^\"]*\"")


def pack_seqs(seqs: Sequence[int]) -> bytes:
    """Eight bytes for each number. Evenly spaced numbers, as in most batches, take 20 bytes in total."""
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
    """A list of numbers for ``json_each``, so that one statement moves a whole batch."""
    return f"[{','.join(map(str, seqs))}]"


def parse_receipt(text: str) -> tuple[int, int]:
    """(seq, lease) of a receipt, which is ``queue/seq.lease`` in hexadecimal."""
    found = _RECEIPT.search(text)
    if not found:
        raise InvalidMessage("this is not a receipt", field="receipt", hint="pass the receipt that claim returned")
    seq, lease = found.groups()
    return int(seq, 16), int(lease, 16)


def fingerprint(error: str) -> str:
    """The same for errors that differ only in numbers, addresses and quoted values."""
    return hashlib.blake2b(_VARYING.sub("?", error).encode(), digest_size=6).hexdigest()
