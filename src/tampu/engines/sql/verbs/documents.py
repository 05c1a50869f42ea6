"""Documents: (kind, tenant, name) → versioned bytes, such as settings. Engines do not read the content.

Changes are rare and run one at a time over all processes: each locks the row of the revision.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.port import DeleteDocument, Document, PutDocument
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Db
from tampu.model.errors import TampuError, VersionConflict

_LAST_CHARACTER = "\U0010ffff"
_ALL = (1 << 63) - 1


def put(commit: Commit, calls: Sequence[PutDocument]) -> list[int | TampuError]:
    replies: list[int | TampuError] = []
    db = commit.db
    (before,) = db.row("lock_revision")
    revision = before
    for call in calls:
        old = get(db, call.kind, call.tenant, call.name)
        if call.version is not None and call.version != (old.version if old else 0):
            replies.append(_conflict(call))
            continue
        if call.kind == "queue" and not call.name.endswith("*"):
            commit.queue(call.tenant, call.name)
        revision += 1
        db.send("put_document", call.kind, call.tenant, call.name, revision, call.value)
        replies.append(revision)
    if revision != before:
        db.send("set_revision", revision)
    return replies


def delete(commit: Commit, calls: Sequence[DeleteDocument]) -> list[bool | TampuError]:
    db = commit.db
    (revision,) = db.row("lock_revision")
    replies: list[bool | TampuError] = []
    for call in calls:
        if call.version is not None:
            old = get(db, call.kind, call.tenant, call.name)
            if call.version != (old.version if old else 0):
                replies.append(_conflict(call))
                continue
        replies.append(db.row("delete_document", call.kind, call.tenant, call.name) is not None)
    if True in replies:
        db.send("set_revision", revision + 1)
    return replies


def _conflict(call: PutDocument | DeleteDocument) -> VersionConflict:
    return VersionConflict(f"{call.kind} {call.name} was changed meanwhile", hint="read it again and try again")


def get(db: Db, kind: str, tenant: str, name: str) -> Document | None:
    row = db.row("select_document", kind, tenant, name)
    return None if row is None else Document(*row)


def of_kind(db: Db, kind: str, tenant: str, prefix: str, after: str, limit: int | None) -> list[Document]:
    end = prefix + _LAST_CHARACTER
    most = _ALL if limit is None else limit
    return [Document(*row) for row in db.rows("list_documents", kind, tenant, prefix, after, end, most)]


def every(db: Db) -> list[Document]:
    return [Document(*row) for row in db.rows("list_all_documents")]
