"""Stores the names of units and the replies of their calls, as an idempotency key of a reserved tenant and a result.

Both are trimmed when they expire, like those of users.
"""

from __future__ import annotations

from tampu.engines.port import Together
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Values

TENANT = "/"
"""No tenant has this name."""


def find(commit: Commit, unit: Together) -> tuple[bytes, bytes] | None:
    commit.locks.take([b"unit/" + _key(unit)])
    found = commit.db.row("find_idempotency_keys", TENANT, commit.now, Values("b", [(_key(unit),)]))
    if found is None:
        return None
    _, seq, _, _, digest = found
    (packed,) = commit.db.row("select_result", seq, commit.now)
    return digest, packed


def keep(commit: Commit, unit: Together, digest: bytes, packed: bytes) -> None:
    (seq,), until = commit.numbers(1), commit.now + unit.name_us
    row = (_key(unit), seq, commit.stamp, until, None, digest)
    commit.db.send("upsert_idempotency_keys", TENANT, Values("biiiub", [row]))
    commit.db.send("upsert_results", Values("iib", [(seq, until, packed)]))


def _key(unit: Together) -> bytes:
    return f"{unit.tenant}/{unit.name}".encode()
