"""The names and replies of units, stored as an idempotency key of a tenant name that is not allowed, and a result.

Both are trimmed like those of users.
"""

from __future__ import annotations

from tampu.engines.port import Together
from tampu.engines.sqlite.commit import Commit

TENANT = "/"
"""No real tenant has this name."""


def find(commit: Commit, unit: Together) -> tuple[bytes, bytes] | None:
    row: tuple[bytes, bytes] | None = commit.db.execute(
        "SELECT i.digest, r.body FROM tampu_idempotency i JOIN tampu_result r ON r.seq = i.seq"
        " WHERE i.tenant = ? AND i.key = ? AND i.until > ?",
        (TENANT, _key(unit), commit.now),
    ).fetchone()
    return row


def keep(commit: Commit, unit: Together, digest: bytes, packed: bytes) -> None:
    seq, until = commit.numbers(1)[0], commit.now + unit.name_us
    commit.db.execute(
        "INSERT OR REPLACE INTO tampu_idempotency VALUES (?, ?, ?, ?, ?, ?)",
        (TENANT, _key(unit), seq, None, digest, until),
    )
    commit.db.execute("INSERT INTO tampu_result VALUES (?, ?, ?)", (seq, until, packed))


def _key(unit: Together) -> str:
    return f"{unit.tenant}/{unit.name}"
