"""Documents: (kind, tenant, name) → versioned bytes. The broker stores settings in them; engines do not read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tampu.engines.port import DeleteDocument, Document, PutDocument
from tampu.engines.sqlite.commit import Commit
from tampu.model.errors import TampuError, VersionConflict

GET = "SELECT kind, tenant, name, version, value FROM tampu_document WHERE kind = ? AND tenant = ? AND name = ?"


def put(commit: Commit, calls: Sequence[PutDocument]) -> list[int | TampuError]:
    replies: list[int | TampuError] = []
    for call in calls:
        old = get(commit.db, call.kind, call.tenant, call.name)
        if call.version is not None and call.version != (old.version if old else 0):
            replies.append(
                VersionConflict(f"{call.kind} {call.name} was changed meanwhile", hint="read it again and try again")
            )
            continue
        if call.kind == "queue" and call.name != "*":
            commit.queue(call.tenant, call.name)
        version = commit.touch_documents()
        commit.db.execute(
            "INSERT OR REPLACE INTO tampu_document VALUES (?, ?, ?, ?, ?)",
            (call.kind, call.tenant, call.name, version, call.value),
        )
        replies.append(version)
    return replies


def delete(commit: Commit, calls: Sequence[DeleteDocument]) -> list[bool | TampuError]:
    replies: list[bool | TampuError] = []
    for call in calls:
        gone = commit.db.execute(
            "DELETE FROM tampu_document WHERE kind = ? AND tenant = ? AND name = ?", (call.kind, call.tenant, call.name)
        ).rowcount
        if gone:
            commit.touch_documents()
        replies.append(bool(gone))
    return replies


def get(db: sqlite3.Connection, kind: str, tenant: str, name: str) -> Document | None:
    row = db.execute(GET, (kind, tenant, name)).fetchone()
    return None if row is None else Document(*row)


def list_all(db: sqlite3.Connection, kind: str, tenant: str) -> list[Document]:
    rows = db.execute(
        "SELECT kind, tenant, name, version, value FROM tampu_document WHERE kind = ? AND tenant = ? ORDER BY name",
        (kind, tenant),
    )
    return [Document(*row) for row in rows]


def every(db: sqlite3.Connection) -> list[Document]:
    rows = db.execute("SELECT kind, tenant, name, version, value FROM tampu_document ORDER BY kind, tenant, name")
    return [Document(*row) for row in rows]
