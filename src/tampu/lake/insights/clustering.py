"""Failures that are one trouble: fingerprints over the days together, and those whose texts are nearly the same.

A fingerprint already passes over numbers and quoted values. What is left apart (a host's name, a word more) is joined
when most of the words are the same. Tenants are never joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

ALIKE = 0.75
"""The share of words that two texts must have in common."""
_MOST_COMPARED = 500
_MOST_WORDS = 60
_SAMPLES = 5
_VARYING = re.compile(
    r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|'[^']*'|\"[^\"]*\"|[^\s:,;()=]*\d[^\s:,;()=]*", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_]+|\?")


class Cluster(msgspec.Struct, frozen=True):
    tenant: str
    error: str
    """Of the latest failure."""
    fingerprints: tuple[str, ...]
    queues: tuple[str, ...]
    types: tuple[str, ...]
    attempts: int
    messages: int
    dead: int
    first_at: datetime | None
    last_at: datetime | None
    sample_ids: tuple[str, ...]


def words(error: str | None) -> tuple[str, ...]:
    """The words of an error, without what varies."""
    return tuple(_WORD.findall(_VARYING.sub("?", (error or "").lower()[:2000])))[:_MOST_WORDS]


def alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """The same kind of error (its first word), and mostly the same words."""
    if one == other:
        return True
    if not one or not other or one[0] != other[0]:
        return False
    mine, theirs = set(one), set(other)
    return len(mine & theirs) >= ALIKE * len(mine | theirs)


def cluster(rows: Iterable[Mapping[str, Any]]) -> list[Cluster]:
    """Rows of gold.failures, grouped; the worst first: by dead, then by attempts."""
    by_print: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_print.setdefault((row["tenant"] or "", row["fingerprint"] or ""), []).append(row)
    groups = sorted(by_print.items(), key=lambda g: (_weight(g[1]), g[0]))
    leaders: list[tuple[str, tuple[str, ...], list[Mapping[str, Any]]]] = []
    for (tenant, _), members in groups:
        text = words(_latest(members)["error"])
        for owner, other, joined in leaders[:_MOST_COMPARED]:
            if owner == tenant and alike(other, text):
                joined.extend(members)
                break
        else:
            leaders.append((tenant, text, list(members)))
    made = [_made(tenant, members) for tenant, _, members in leaders]
    return sorted(made, key=lambda c: (-c.dead, -c.attempts, c.tenant, c.fingerprints))


def _weight(rows: list[Mapping[str, Any]]) -> tuple[int, int]:
    return -sum(row["dead"] or 0 for row in rows), -sum(row["attempts"] or 0 for row in rows)


def _latest(rows: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    return max(rows, key=lambda row: (row["last_at"] is not None, row["last_at"], row["error"] or ""))


def _made(tenant: str, rows: list[Mapping[str, Any]]) -> Cluster:
    attempts, dead = (sum(row[name] or 0 for row in rows) for name in ("attempts", "dead"))
    rows = sorted(rows, key=lambda row: (row["last_at"] is None, row["last_at"], row["queue"] or ""), reverse=True)
    starts = [row["first_at"] for row in rows if row["first_at"] is not None]
    ends = [row["last_at"] for row in rows if row["last_at"] is not None]
    samples = dict.fromkeys(id for row in rows for id in row["sample_ids"] or ())
    return Cluster(
        tenant=tenant,
        error=_latest(rows)["error"] or "",
        fingerprints=tuple(sorted({row["fingerprint"] or "" for row in rows})),
        queues=tuple(sorted({row["queue"] or "" for row in rows})),
        types=tuple(sorted({kind for row in rows for kind in row["types"] or () if kind})),
        attempts=attempts,
        messages=sum(row["messages"] or 0 for row in rows),
        dead=dead,
        first_at=min(starts, default=None),
        last_at=max(ends, default=None),
        sample_ids=tuple(samples)[:_SAMPLES],
    )
