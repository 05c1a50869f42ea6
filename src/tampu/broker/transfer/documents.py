"""Copy documents to the target: settings, documents of applications, and the readers of the journal."""

from __future__ import annotations

import msgspec

from tampu.broker import journal_readers
from tampu.broker.dead import jobs
from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.settings import KIND
from tampu.broker.transfer import progress
from tampu.broker.transfer.close import CLOSED, own_config, put_status, split
from tampu.broker.transfer.progress import SourceProgress, TargetProgress, do
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.engines.transfer import StartJournal
from tampu.model.config import QueueConfig, is_pattern, read_config
from tampu.model.errors import InvalidState
from tampu.model.journal import Position


def start_journal(target: Engine, note: TargetProgress) -> None:
    if note.fresh:
        do(target, StartJournal(note.journal))


def check_readers(source: Engine, end: Position, *, force: bool) -> list[str]:
    """Refuse if a reader has not read the source's journal up to ``end``; with ``force`` return the names of those."""
    behind = []
    for reader in journal_readers.registered(source):
        left = sum(max(0, last - reader.position.get(p, 0)) for p, last in end.items())
        if left:
            behind.append(reader.name)
            if not force:
                raise InvalidState(
                    f"{reader.name} has not read the last {left} transitions of the source's journal",
                    hint="let it read once more (tampu pipeline run), then copy again; with --force it stays behind",
                )
    return behind


_NOT_CARRIED = (progress.KIND, journal_readers.KIND, jobs.KIND, jobs.PAGE)
"""Replays of dead letters have places in the indexes of their store."""


def carry_documents(source: Engine, target: Engine, away: SourceProgress, note: TargetProgress) -> int:
    """Copy all documents but the readers'. Documents that the target has stay; queues are closed there."""
    count = 0
    for document in source.all_documents():
        place = (document.kind, document.tenant, document.name)
        if document.kind in _NOT_CARRIED or place == journal_readers.IDENTITY:
            continue
        if document.kind == KIND:
            count += _carry_settings(target, document, away, note)
        elif target.document(*place) is None:
            do(target, PutDocument(*place, document.value))
            count += 1
    for name in away.statuses:
        if not is_pattern(split(name)[1]):
            put_status(target, name, CLOSED)
    return count


def _carry_settings(target: Engine, document: Document, away: SourceProgress, note: TargetProgress) -> int:
    name = f"{document.tenant}/{document.name}"
    if name in note.before:
        return 0
    config = read_config(document.value)
    status = away.statuses.get(name, config.status) if is_pattern(document.name) else CLOSED
    config = msgspec.structs.replace(config, status=status)
    old, version = own_config(target, document.tenant, document.name)
    if config not in (old, QueueConfig()):
        value = msgspec.json.encode(config)
        do(target, PutDocument(KIND, document.tenant, document.name, value, version))
    return 1


def carry_readers(source: Engine, target: Engine, note: TargetProgress) -> list[str]:
    """Register readers that have read all of the old journal at the target. Returns their names."""
    if not note.fresh:
        return []
    here = end_of_journal(target)
    gone = []
    for reader in journal_readers.registered(source):
        if all(reader.position.get(p, 0) == end for p, end in note.journal.items()):
            position = {p: offset for p, offset in reader.position.items() if p in here}
            if target.document(journal_readers.KIND, journal_readers.TENANT, reader.name) is None:
                moved = msgspec.structs.replace(reader, position=position, moved_us=target.now())
                do(target, journal_readers.saving(moved))
            gone.append(reader.name)
    identity = source.document(*journal_readers.IDENTITY)
    if identity is not None and target.document(*journal_readers.IDENTITY) is None:
        # The identity of the store, for its readers. From now on the target has it, and the source none.
        do(target, PutDocument(*journal_readers.IDENTITY, identity.value))
    return gone


def leave_identity(source: Engine, note: TargetProgress) -> None:
    if note.fresh:
        do(source, DeleteDocument(*journal_readers.IDENTITY))
