"""Verbs on followers: list them, resume one that is parked, remove one that is gone.

Followers belong to the whole store, not to a tenant. What a follower is: `tampu.broker.followers`.
"""

from __future__ import annotations

import msgspec

from tampu.broker import journal_readers, validate
from tampu.broker.core import Core, Read, Steps
from tampu.broker.followers import reader_name
from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.journal_readers import FOLLOWER, Reader
from tampu.engines.port import Document, Engine
from tampu.model.errors import NotFound, VersionConflict
from tampu.model.journal import FollowerStatus, Position
from tampu.model.times import moment


def statuses(engine: Engine) -> list[FollowerStatus]:
    """Of all followers that have a position in the store, whether this process knows their handlers or not."""
    known = [reader for reader in journal_readers.registered(engine) if reader.name.startswith(FOLLOWER)]
    latest = end_of_journal(engine) if known else {}
    return sorted((_status(reader, latest) for reader in known), key=lambda status: status.name)


def _status(reader: Reader, latest: Position) -> FollowerStatus:
    failure = reader.failure
    parked = failure is not None and failure.parked
    return FollowerStatus(
        name=reader.name.removeprefix(FOLLOWER),
        status="active" if failure is None else "parked" if parked else "waiting",
        behind=journal_readers.behind(reader, latest),
        position=reader.position,
        moved_at=moment(reader.moved_us),
        error=None if failure is None else failure.error,
        attempts=0 if failure is None else failure.attempts,
        retry_at=None if failure is None or parked else moment(failure.retry_us),
        handled=reader.handled,
    )


class FollowerVerbs:
    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = tenant

    def list_followers(self) -> Steps[list[FollowerStatus]]:
        """All followers of the store, by name: how far each is, and why one does not go on."""
        found: list[FollowerStatus] = yield Read(statuses)
        return found

    def resume_follower(self, name: str) -> Steps[FollowerStatus]:
        """Resume a follower that is parked or waits after an error. It continues at its position within two seconds."""
        key = reader_name(validate.name(name, "follower"))
        while True:
            document: Document | None = yield Read(
                lambda e: e.document(journal_readers.KIND, journal_readers.TENANT, key)
            )
            if document is None:
                raise NotFound(f"no follower {name}", field="name", hint="list them with: tampu followers list")
            reader = journal_readers.decode(document)
            if reader.failure is not None:
                reader = msgspec.structs.replace(reader, failure=None)
                try:
                    yield journal_readers.saving(reader, document.version)
                except VersionConflict:  # it was tried again meanwhile
                    continue
            latest: Position = yield Read(end_of_journal)
            return _status(reader, latest)

    def remove_follower(self, name: str) -> Steps[bool]:
        """Forget the position of a follower, so that retention does not wait for it; True if there was one.

        If its handler is still registered, it begins again at the end of the journal: it skips what it has not seen.
        """
        existed: bool = yield journal_readers.forgetting(reader_name(validate.name(name, "follower")))
        return existed
