"""Ids of flows and their members.

What is added to a flow at once is a *part*. The id of a member is that of its part, 22 hexadecimal digits, and its
number in the part. So a transition of the journal says by its id alone whether it is about a flow, and which member it
is. The first part gives the flow its id; its number 0 stands for the flow. Ids of flows sort by time, the newest first.
"""

from __future__ import annotations

import hashlib
import secrets

from tampu.model.errors import InvalidMessage

_MARK = "8f10"
"""The third group of these ids, which are UUIDv8."""
_PART_DIGITS = 22
_LAST_MS = (1 << 48) - 1


def is_member(id: str) -> bool:
    """True if it may be the id of a member of a flow. Other ids with the same mark lead to no part."""
    return id[14:18] == _MARK


def _part(start: bytes, end: bytes) -> str:
    return f"{start.hex()}{_MARK}{end[0] & 0x3F | 0x80:02x}{end[1:].hex()}"


def new_flow(now_us: int) -> str:
    """The id of a new flow."""
    return member(_part((_LAST_MS - now_us // 1000).to_bytes(6, "big"), secrets.token_bytes(3)), 0)


def check_flow(id: str) -> str:
    """Raise unless it has the form of the id of a flow."""
    if not is_member(id) or number_of(id):
        raise InvalidMessage("this is not the id of a flow", field="id", hint="see tampu flow list")
    return id


def derived_part(adder: str, n: int) -> str:
    """The nth part that a member adds, in whatever attempt."""
    digest = hashlib.blake2b(f"{adder}/{n}".encode(), digest_size=9).digest()
    return _part(digest[:6], digest[6:])


def part_of(id: str) -> str:
    return id.replace("-", "")[:_PART_DIGITS]


def number_of(id: str) -> int:
    return int(id[26:], 16)


def member(part: str, number: int) -> str:
    digits = f"{part}{number:010x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
